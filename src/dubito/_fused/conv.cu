// A convolution, or its gradient in the input (BACK), of a tile of pixels as products of small matrices.
//
// The tile and a border around it are brought to shared memory once, activated on the way; each place of the window is
// then a shifted look at it. BACK reads the gradient of the output through the window turned round; at stride 2 each
// place of the window then serves pixels of one parity of row and column (EVEN_ODD), and a small matrix holds pixels of
// one. What leaves the tile is rounded, added to `residual`, kept where the activation of `mask` is
// positive, and summed per channel: it and its square, or it and its product with `stat` less `mean`.

template <int CI, int CO, int W, int STRIDE, int TAPS, int ROWS, int IMAGES, int COT, int BUFFERS, int MT, bool BACK>
struct Conv {
  static constexpr int PIXELS = IMAGES * ROWS * W, K = TAPS == 9 ? 3 : 1, BORDER = K / 2;
  static constexpr bool EVEN_ODD = BACK && STRIDE == 2;
  static constexpr int STEP = !BACK && TAPS == 9 ? STRIDE : 1;  // between pixels of the tile
  static constexpr int TR = EVEN_ODD ? ROWS / 2 + K / 2 : (ROWS - 1) * STEP + K;
  static constexpr int TC = EVEN_ODD ? W / 2 + K / 2 : (W - 1) * STEP + K;
  static constexpr int PITCH = CI + 8, SIDE = BACK ? W / STRIDE : W * STRIDE;  // of the input
  static constexpr int COLUMNS = TAPS == 1 && !BACK ? W : SIDE, LEFT = EVEN_ODD ? 0 : BORDER;  // of the image in the tile
  static constexpr int WN = COT < 32 ? 16 : 32, M_WARPS = PIXELS / (16 * MT), N_WARPS = COT / WN;
  static constexpr int THREADS = 32 * M_WARPS * N_WARPS;
  static constexpr int W_ROWS = BACK ? CI : COT, W_COLUMNS = BACK ? COT : CI, W_PITCH = W_COLUMNS + 8;
  static constexpr int TAP = W_ROWS * W_PITCH;
  static constexpr int OUT_PITCH = COT + 8;
  static constexpr int TILE = IMAGES * TR * TC * PITCH, OUT = PIXELS * OUT_PITCH;
  static constexpr int ROOM = TILE > OUT ? TILE : OUT;  // elements before the weights
  static_assert(!EVEN_ODD || MT == 4, "a small matrix for each parity");

  // The pixel of the tile that row r of small matrix m of a warp is.
  static __device__ __forceinline__ int pixel(int m_warp, int m, int r) {
    if (!EVEN_ODD) return (m_warp * MT + m) * 16 + r;
    const int n = m_warp * 16 + r;
    return (n / (W / 2) * 2 + m / 2) * W + n % (W / 2) * 2 + m % 2;
  }
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

template <int CI, int CO, int W, int STRIDE, int TAPS, int ROWS, int IMAGES, int COT, int BUFFERS, int MT, bool BACK>
__global__ void __launch_bounds__(Conv<CI, CO, W, STRIDE, TAPS, ROWS, IMAGES, COT, BUFFERS, MT, BACK>::THREADS)
conv(const bf16* __restrict__ x, const bf16* __restrict__ weight, const float* __restrict__ scale,
     const float* __restrict__ shift, bf16* __restrict__ out, const bf16* __restrict__ residual,
     const bf16* __restrict__ mask, const float* __restrict__ mask_scale, const float* __restrict__ mask_shift,
     const bf16* __restrict__ stat, const float* __restrict__ mean, float* partial, Norm norm) {
  using C = Conv<CI, CO, W, STRIDE, TAPS, ROWS, IMAGES, COT, BUFFERS, MT, BACK>;
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
  clear_border<IMAGES * C::TR, C::COLUMNS, C::TC, C::LEFT, CI, C::PITCH, C::THREADS>(tile);
  constexpr int LINE = C::COLUMNS * (CI / 8);
#pragma unroll 4
  for (int i = thread; i < IMAGES * C::TR * LINE; i += C::THREADS) {
    const int line = i / LINE, column = i % LINE / (CI / 8), channel = i % (CI / 8) * 8;
    const int row = IMAGES == 1 ? line : line % C::TR, image = IMAGES == 1 ? 0 : line / C::TR;
    const int h = C::EVEN_ODD ? first_row / 2 + row : BACK ? first_row + row - C::BORDER
                  : TAPS == 9 ? first_row * STRIDE + row - C::BORDER : (first_row + row) * STRIDE;
    const int w = TAPS == 1 && !BACK ? column * STRIDE : column;
    uint4 v = make_uint4(0u, 0u, 0u, 0u);
    if (h >= 0 && h < C::SIDE) v = activate(eight(x + (((first_image + image) * C::SIDE + h) * C::SIDE + w) * CI + channel));
    *reinterpret_cast<uint4*>(tile + (line * C::TC + column + C::LEFT) * C::PITCH + channel) = v;
  }

  constexpr int NT = C::WN / 8;
  float sums[MT][NT][4];
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[m][n][j] = 0.f;

  const int m_warp = warp % C::M_WARPS, n_warp = warp / C::M_WARPS;
  u32 a_at[MT];
#pragma unroll
  for (int m = 0; m < MT; ++m) {
    const int pixel = C::pixel(m_warp, m, lane % 16);
    const int image = pixel / (ROWS * W), row = pixel / W % ROWS, column = pixel % W;
    const int line = image * C::TR + (C::EVEN_ODD ? row / 2 : row * C::STEP);
    a_at[m] = shared_at(tile + (line * C::TC + (C::EVEN_ODD ? column / 2 : column * C::STEP)) * C::PITCH + lane / 16 * 8);
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
      for (int m = 0; m < MT; ++m) {
        u32 a[4];
        if (C::EVEN_ODD) {
          const int down = TAPS == 9 ? m / 2 + t / 3 : m / 2 + 1, right = TAPS == 9 ? m % 2 + t % 3 : m % 2 + 1;
          if (down % 2 == 0 || right % 2 == 0) continue;
          ldmatrix4(a, a_at[m] + ((down - 1) / 2 * C::TC + (right - 1) / 2) * C::PITCH * 2 + k * 32);
        } else {
          ldmatrix4(a, a_at[m] + look + k * 32);
        }
#pragma unroll
        for (int n = 0; n < NT; ++n) multiply(sums[m][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }

  __syncthreads();
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int n = 0; n < NT; ++n) {
      const int column = n_warp * C::WN + n * 8 + lane % 4 * 2;
      bf16 *first_to = tile + C::pixel(m_warp, m, lane / 4) * C::OUT_PITCH + column;
      bf16 *second_to = tile + C::pixel(m_warp, m, lane / 4 + 8) * C::OUT_PITCH + column;
      *reinterpret_cast<u32*>(first_to) = pack(sums[m][n][0], sums[m][n][1]);
      *reinterpret_cast<u32*>(second_to) = pack(sums[m][n][2], sums[m][n][3]);
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
    uint4 rounded = *reinterpret_cast<const uint4*>(tile + pixel * C::OUT_PITCH + channel);
    float v[8];
    unpack(rounded, v);
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
    if (residual) {
      rounded = pack(v);
      unpack(rounded, v);
    } else if (mask) {
      rounded = pack(v);
    }
    *reinterpret_cast<uint4*>(out + at) = rounded;
    if (partial) {
      float s[8];
      if (stat) unpack(eight(stat + at), s);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        one[j] += v[j];
        two[j] = fmaf(v[j], stat ? s[j] - centre[j] : v[j], two[j]);
      }
    }
  }
  if (partial) {
    sum_channels<COT, C::THREADS>(one, two, reinterpret_cast<float*>(memory), partial, blockIdx.x, CO, first);
    finish<CO, C::THREADS, BACK>(norm, partial, gridDim.x, gridDim.x * gridDim.y, reinterpret_cast<double*>(memory));
  }
}
