// The gradient of a convolution in its weights: for each place of the window the sum over pixels of
// (gradient of the output) x (activated input), as products of small matrices whose inner axis is the pixels.
//
// A block takes some channels of both and every `gridDim.x`-th tile of pixels; while it works on one, the next is on its
// way to shared memory. Its sums are one part; `add_parts` adds the parts, in a fixed order.

template <int CI, int CO, int W, int STRIDE, int TAPS, int ROWS, int IMAGES, int COT, int CIT>
struct Weight {
  static constexpr int PIXELS = IMAGES * ROWS * W, K = TAPS == 9 ? 3 : 1, BORDER = K / 2;
  static constexpr int STEP = TAPS == 9 ? STRIDE : 1;
  static constexpr int TR = (ROWS - 1) * STEP + K, TC = (W - 1) * STEP + K;
  static constexpr int PITCH = CIT + 8, G_PITCH = COT + 8, SIDE = W * STRIDE;
  static constexpr int COLUMNS = TAPS == 9 ? SIDE : W, LINE = COLUMNS * (CIT / 8);  // of the image in the tile
  static constexpr int WM = COT < 32 ? 16 : 32, MT = WM / 16, M_WARPS = COT / WM, N_WARPS = CIT / 8;
  static constexpr int K_WARPS = 8 / (M_WARPS * N_WARPS), THREADS = 256;
  static constexpr int TILE = IMAGES * TR * TC * PITCH, STAGE = IMAGES * TR * COLUMNS * CIT, GRADS = PIXELS * G_PITCH;
};

template <int CI, int CO, int W, int STRIDE, int TAPS, int ROWS, int IMAGES, int COT, int CIT>
__global__ void __launch_bounds__(256, 2)
conv_weight(const bf16* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
            const bf16* __restrict__ grad, float* __restrict__ out, int tiles) {
  using C = Weight<CI, CO, W, STRIDE, TAPS, ROWS, IMAGES, COT, CIT>;
  extern __shared__ __align__(16) unsigned char memory[];
  bf16* tile = reinterpret_cast<bf16*>(memory);
  bf16* stage = tile + C::TILE;
  bf16* both_grads = stage + C::STAGE;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int first_out = blockIdx.y * COT, first_in = blockIdx.z * CIT;
  const int m_warp = warp % C::M_WARPS, n_warp = warp / C::M_WARPS % C::N_WARPS, k_warp = warp / (C::M_WARPS * C::N_WARPS);
  const int channel = thread % (CIT / 8) * 8;
  const Activation activate(scale, shift, first_in + channel);

  // The pixel of the input that chunk i of the stage is, or -1 outside of the image.
  auto source = [&](int part, int i) {
    const int first_image = IMAGES == 1 ? part / (W / ROWS) : part * IMAGES;
    const int first_row = IMAGES == 1 ? part % (W / ROWS) * ROWS : 0;
    const int line = i / C::LINE, column = i % C::LINE / (CIT / 8);
    const int row = IMAGES == 1 ? line : line % C::TR, image = IMAGES == 1 ? 0 : line / C::TR;
    const int h = TAPS == 9 ? first_row * STRIDE + row - C::BORDER : (first_row + row) * STRIDE;
    const int w = TAPS == 9 ? column : column * STRIDE;
    return h >= 0 && h < C::SIDE ? ((first_image + image) * C::SIDE + h) * C::SIDE + w : -1;
  };
  auto bring = [&](int part, bf16* grads) {
    for (int i = thread; i < C::PIXELS * (COT / 8); i += C::THREADS) {
      const int pixel = i / (COT / 8), c = i % (COT / 8) * 8;
      copy_async(shared_at(grads + pixel * C::G_PITCH + c), grad + (part * C::PIXELS + pixel) * CO + first_out + c);
    }
    for (int i = thread; i < C::STAGE / 8; i += C::THREADS) {
      const int from = source(part, i);
      if (from >= 0) copy_async(shared_at(stage + i * 8), x + from * CI + first_in + channel);
    }
    commit();
  };

  float sums[TAPS][C::MT][4];
#pragma unroll
  for (int t = 0; t < TAPS; ++t)
#pragma unroll
    for (int m = 0; m < C::MT; ++m)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[t][m][j] = 0.f;

  bring(blockIdx.x, both_grads);
  clear_border<IMAGES * C::TR, C::COLUMNS, C::TC, C::BORDER, CIT, C::PITCH, C::THREADS>(tile);
  int turn = 0;
  for (int part = blockIdx.x; part < tiles; part += gridDim.x, turn ^= 1) {
    const bf16* grads = both_grads + turn * C::GRADS;
    wait<0>();
    __syncthreads();  // the last tile has been worked on
    for (int i = thread; i < C::STAGE / 8; i += C::THREADS) {  // each thread activates what it has brought
      uint4 v = make_uint4(0u, 0u, 0u, 0u);
      if (source(part, i) >= 0) v = activate(*reinterpret_cast<const uint4*>(stage + i * 8));
      const int line = i / C::LINE, column = i % C::LINE / (CIT / 8) + C::BORDER;
      *reinterpret_cast<uint4*>(tile + (line * C::TC + column) * C::PITCH + channel) = v;
    }
    if (part + gridDim.x < tiles) bring(part + gridDim.x, both_grads + (turn ^ 1) * C::GRADS);
    __syncthreads();
#pragma unroll 1
    for (int k = k_warp; k < C::PIXELS / 16; k += C::K_WARPS) {
      u32 a[C::MT][4];
      const int a_pixel = k * 16 + lane % 8 + lane / 16 * 8;
#pragma unroll
      for (int m = 0; m < C::MT; ++m)
        ldmatrix4_turned(a[m], shared_at(grads + a_pixel * C::G_PITCH + m_warp * C::WM + m * 16 + lane / 8 % 2 * 8));
      const int pixel = k * 16 + lane % 16;
      const int image = pixel / (ROWS * W), row = pixel / W % ROWS, column = pixel % W;
      const u32 b_at = shared_at(tile + ((image * C::TR + row * C::STEP) * C::TC + column * C::STEP) * C::PITCH + n_warp * 8);
#pragma unroll
      for (int t = 0; t + 1 < TAPS; t += 2) {  // two places of the window at a time
        constexpr u32 E = C::PITCH * 2;
        const u32 here = (t / 3 * C::TC + t % 3) * E, next = ((t + 1) / 3 * C::TC + (t + 1) % 3) * E;
        u32 b[4];
        ldmatrix4_turned(b, b_at + (lane < 16 ? here : next));
#pragma unroll
        for (int m = 0; m < C::MT; ++m) {
          multiply(sums[t][m], a[m], b[0], b[1]);
          multiply(sums[t + 1 < TAPS ? t + 1 : t][m], a[m], b[2], b[3]);
        }
      }
      u32 b0, b1;
      ldmatrix2_turned(b0, b1, b_at + (TAPS == 9 ? (2 * C::TC + 2) * C::PITCH * 2 : 0));
#pragma unroll
      for (int m = 0; m < C::MT; ++m) multiply(sums[TAPS - 1][m], a[m], b0, b1);
    }
  }

  wait<0>();
  // Groups of warps that took different pixels are added, one after the other.
  float* room = reinterpret_cast<float*>(memory) + ((m_warp * C::N_WARPS + n_warp) * 32 + lane) * (TAPS * C::MT * 4);
#pragma unroll
  for (int group = 1; group < C::K_WARPS; ++group) {
    __syncthreads();
    if (k_warp == group)
#pragma unroll
      for (int t = 0; t < TAPS; ++t)
#pragma unroll
        for (int m = 0; m < C::MT; ++m)
          *reinterpret_cast<float4*>(room + (t * C::MT + m) * 4) = make_float4(sums[t][m][0], sums[t][m][1], sums[t][m][2], sums[t][m][3]);
    __syncthreads();
    if (k_warp == 0)
#pragma unroll
      for (int t = 0; t < TAPS; ++t)
#pragma unroll
        for (int m = 0; m < C::MT; ++m) {
          const float4 other = *reinterpret_cast<const float4*>(room + (t * C::MT + m) * 4);
          sums[t][m][0] += other.x, sums[t][m][1] += other.y, sums[t][m][2] += other.z, sums[t][m][3] += other.w;
        }
  }
  if (k_warp > 0) return;
  float* to = out + blockIdx.x * (CO * TAPS * CI);
#pragma unroll
  for (int t = 0; t < TAPS; ++t)
#pragma unroll
    for (int m = 0; m < C::MT; ++m) {
      const int o = first_out + m_warp * C::WM + m * 16 + lane / 4, c = first_in + n_warp * 8 + lane % 4 * 2;
      *reinterpret_cast<float2*>(to + (o * TAPS + t) * CI + c) = make_float2(sums[t][m][0], sums[t][m][1]);
      *reinterpret_cast<float2*>(to + ((o + 8) * TAPS + t) * CI + c) = make_float2(sums[t][m][2], sums[t][m][3]);
    }
}

// The sum over parts, four numbers a thread.
extern "C" __global__ void add_parts(const float4* __restrict__ parts, float4* __restrict__ out, int count, int size) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= size) return;
  float4 total = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 8
  for (int p = 0; p < count; ++p) {
    const float4 one = parts[p * size + i];
    total.x += one.x, total.y += one.y, total.z += one.z, total.w += one.w;
  }
  out[i] = total;
}
