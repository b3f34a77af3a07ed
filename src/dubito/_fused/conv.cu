// A convolution, or its gradient in the input (BACK), of a tile of pixels as products of small matrices.
//
// The tile and a border around it are brought to shared memory once, activated on the way; each place of the window is
// then a shifted look at it. BACK reads the gradient of the output, with zeros between its pixels at stride 2, through
// the window turned round. What leaves the tile is rounded, added to `residual`, kept where the activation of `mask` is
// positive, and summed per channel: it and its square, or it and its product with `stat` less `mean`.

template <int CI, int CO, int W, int STRIDE, int TAPS, int ROWS, int IMAGES, int COT, int BUFFERS, bool BACK>
struct Conv {
  static constexpr int PIXELS = IMAGES * ROWS * W, K = TAPS == 9 ? 3 : 1, BORDER = K / 2;
  static constexpr int STEP = !BACK && TAPS == 9 ? STRIDE : 1;  // between pixels of the tile
  static constexpr int TR = (ROWS - 1) * STEP + K, TC = (W - 1) * STEP + K;
  static constexpr int PITCH = CI + 8, SIDE = BACK ? W / STRIDE : W * STRIDE;  // of the input
  static constexpr int WN = COT < 32 ? 16 : 32, M_WARPS = PIXELS / 64, N_WARPS = COT / WN;
  static constexpr int THREADS = 32 * M_WARPS * N_WARPS;
  static constexpr int W_ROWS = BACK ? CI : COT, W_COLUMNS = BACK ? COT : CI, W_PITCH = W_COLUMNS + 8;
  static constexpr int TAP = W_ROWS * W_PITCH;
  static constexpr int OUT_PITCH = COT + 8;
  static constexpr int TILE = IMAGES * TR * TC * PITCH, OUT = PIXELS * OUT_PITCH;
  static constexpr int ROOM = TILE > OUT ? TILE : OUT;  // elements before the weights
};

template <class C, int CI, int CO, int TAPS, int COT, bool BACK>
__device__ __forceinline__ void bring_weights(bf16* to, const bf16* weight, int tap, int first) {
  const int place = BACK ? TAPS - 1 - tap : tap;
  constexpr int CHUNKS = C::W_ROWS * C::W_COLUMNS / 8;
  for (int i = threadIdx.x; i < CHUNKS; i += C::THREADS) {
    const int row = i / (C::W_COLUMNS / 8), column = i % (C::W_COLUMNS / 8) * 8;
    const bf16* from = BACK ? weight + (row * TAPS + place) * CO + first + column
                            : weight + ((first + row) * TAPS + place) * CI + column;
    copy_async(shared_at(to + row * C::W_PITCH + column), from);
  }
}

template <int CI, int CO, int W, int STRIDE, int TAPS, int ROWS, int IMAGES, int COT, int BUFFERS, bool BACK>
__global__ void __launch_bounds__(Conv<CI, CO, W, STRIDE, TAPS, ROWS, IMAGES, COT, BUFFERS, BACK>::THREADS)
conv(const bf16* __restrict__ x, const bf16* __restrict__ weight, const float* __restrict__ scale,
     const float* __restrict__ shift, bf16* __restrict__ out, const bf16* __restrict__ residual,
     const bf16* __restrict__ mask, const float* __restrict__ mask_scale, const float* __restrict__ mask_shift,
     const bf16* __restrict__ stat, const float* __restrict__ mean, float* __restrict__ partial) {
  using C = Conv<CI, CO, W, STRIDE, TAPS, ROWS, IMAGES, COT, BUFFERS, BACK>;
  extern __shared__ __align__(16) unsigned char memory[];
  bf16* tile = reinterpret_cast<bf16*>(memory);
  bf16* weights = tile + C::ROOM;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int first_image = IMAGES == 1 ? blockIdx.x / (W / ROWS) : blockIdx.x * IMAGES;
  const int first_row = IMAGES == 1 ? blockIdx.x % (W / ROWS) * ROWS : 0;
  const int first = blockIdx.y * COT;  // channel out

  constexpr int AHEAD = BUFFERS == TAPS ? TAPS : BUFFERS - 1;
  for (int t = 0; t < AHEAD; ++t) {
    bring_weights<C, CI, CO, TAPS, COT, BACK>(weights + t * C::TAP, weight, t, first);
    if (BUFFERS != TAPS) commit();
  }
  if (BUFFERS == TAPS) commit();

  const Activation activate(scale, shift, thread % (CI / 8) * 8);
#pragma unroll 4
  for (int i = thread; i < IMAGES * C::TR * C::TC * (CI / 8); i += C::THREADS) {
    const int channel = i % (CI / 8) * 8, at = i / (CI / 8);
    const int column = at % C::TC, row = at / C::TC % C::TR, image = at / (C::TC * C::TR);
    int h, w;
    bool inside;
    if (BACK) {
      h = first_row + row - C::BORDER, w = column - C::BORDER;
      inside = h >= 0 && h < W && w >= 0 && w < W;
      if (STRIDE == 2) inside = inside && !((h | w) & 1), h >>= 1, w >>= 1;
    } else {
      h = TAPS == 9 ? first_row * STRIDE + row - C::BORDER : (first_row + row) * STRIDE;
      w = TAPS == 9 ? column - C::BORDER : column * STRIDE;
      inside = h >= 0 && h < C::SIDE && w >= 0 && w < C::SIDE;
    }
    uint4 v = make_uint4(0u, 0u, 0u, 0u);
    if (inside) v = activate(eight(x + (((first_image + image) * C::SIDE + h) * C::SIDE + w) * CI + channel));
    *reinterpret_cast<uint4*>(tile + at * C::PITCH + channel) = v;
  }

  constexpr int NT = C::WN / 8;
  float sums[4][NT][4];
#pragma unroll
  for (int m = 0; m < 4; ++m)
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[m][n][j] = 0.f;

  const int m_warp = warp % C::M_WARPS, n_warp = warp / C::M_WARPS;
  u32 a_at[4];
#pragma unroll
  for (int m = 0; m < 4; ++m) {
    const int pixel = m_warp * 64 + m * 16 + lane % 16;
    const int image = pixel / (ROWS * W), row = pixel / W % ROWS, column = pixel % W;
    a_at[m] = shared_at(tile + ((image * C::TR + row * C::STEP) * C::TC + column * C::STEP) * C::PITCH + lane / 16 * 8);
  }
  const u32 b_at = BACK ? shared_at(weights + lane % 16 * C::W_PITCH + n_warp * C::WN + lane / 16 * 8)
                        : shared_at(weights + (n_warp * C::WN + lane % 8 + lane / 16 * 8) * C::W_PITCH + lane / 8 % 2 * 8);

  if (BUFFERS == TAPS) {
    wait<0>();
    __syncthreads();
  }
#pragma unroll (CI <= 32 ? 9 : 1)
  for (int t = 0; t < TAPS; ++t) {
    if (BUFFERS != TAPS) {
      wait<(BUFFERS == TAPS ? 0 : BUFFERS - 2)>();
      __syncthreads();
      const int next = t + BUFFERS - 1;
      if (next < TAPS)
        bring_weights<C, CI, CO, TAPS, COT, BACK>(weights + next % BUFFERS * C::TAP, weight, next, first);
      commit();
    }
    const u32 look = TAPS == 9 ? (t / 3 * C::TC + t % 3) * C::PITCH * 2 : 0;
    const u32 b_tap = b_at + t % BUFFERS * C::TAP * 2;
#pragma unroll
    for (int k = 0; k < CI / 16; ++k) {
      u32 b[NT / 2][4];
#pragma unroll
      for (int n = 0; n < NT / 2; ++n) {
        if (BACK) ldmatrix4_turned(b[n], b_tap + (k * 16 * C::W_PITCH + n * 16) * 2);
        else ldmatrix4(b[n], b_tap + (n * 16 * C::W_PITCH + k * 16) * 2);
      }
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        u32 a[4];
        ldmatrix4(a, a_at[m] + look + k * 32);
#pragma unroll
        for (int n = 0; n < NT; ++n) multiply(sums[m][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }

  __syncthreads();
#pragma unroll
  for (int m = 0; m < 4; ++m)
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      bf16* to = tile + (m_warp * 64 + m * 16 + lane / 4) * C::OUT_PITCH + n_warp * C::WN + n * 8 + lane % 4 * 2;
      *reinterpret_cast<u32*>(to) = pack(sums[m][n][0], sums[m][n][1]);
      *reinterpret_cast<u32*>(to + 8 * C::OUT_PITCH) = pack(sums[m][n][2], sums[m][n][3]);
    }
  __syncthreads();

  const int channel = thread % (COT / 8) * 8;
  const Activation masked(mask_scale, mask_shift, first + channel);
  float one[8], two[8], centre[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    one[j] = two[j] = 0.f;
    centre[j] = stat ? mean[first + channel + j] : 0.f;
  }
#pragma unroll 2
  for (int i = thread; i < C::PIXELS * (COT / 8); i += C::THREADS) {
    const int pixel = i / (COT / 8), at = (blockIdx.x * C::PIXELS + pixel) * CO + first + channel;
    float v[8];
    unpack(*reinterpret_cast<const uint4*>(tile + pixel * C::OUT_PITCH + channel), v);
    if (residual) {
      float r[8];
      unpack(eight(residual + at), r);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] += r[j];
    }
    if (mask) {
      float m[8];
      unpack(eight(mask + at), m);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = fmaf(m[j], masked.scale[j], masked.shift[j]) > 0.f ? v[j] : 0.f;
    }
    const uint4 rounded = pack(v);
    *reinterpret_cast<uint4*>(out + at) = rounded;
    if (partial) {
      unpack(rounded, v);
      float s[8];
      if (stat) unpack(eight(stat + at), s);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        one[j] += v[j];
        two[j] = fmaf(v[j], stat ? s[j] - centre[j] : v[j], two[j]);
      }
    }
  }
  if (partial) sum_channels<COT, C::THREADS>(one, two, reinterpret_cast<float*>(memory), partial, blockIdx.x, CO, first);
}
