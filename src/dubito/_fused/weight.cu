// The gradient of a convolution in its weights: for each place of the window the sum over pixels of
// (gradient of the output) x (activated input), as products of small matrices whose inner axis is the pixels.
//
// A block takes some channels of both and every `gridDim.x`-th tile of pixels; while it works on one, the next is being
// loaded into shared memory, where each thread activates what it loaded. At stride 1 a warp goes down the lines of an
// image, so that a line read once serves the three rows of the window (ROLL). The sums of a block are one part;
// `add_parts` adds the parts, in a fixed order.

template <int CI, int CO, int W, int STRIDE, int TAPS, int ROWS, int IMAGES, int COT, int CIT>
struct Weight {
  static constexpr int PIXELS = IMAGES * ROWS * W, K = TAPS == 9 ? 3 : 1, BORDER = K / 2;
  static constexpr int STEP = TAPS == 9 ? STRIDE : 1;
  static constexpr bool ROLL = TAPS == 9 && STRIDE == 1;
  static constexpr int TR = (ROWS - 1) * STEP + K, TC = (W - 1) * STEP + K;
  static constexpr int PITCH = CIT + 8, G_PITCH = COT + 8, SIDE = W * STRIDE;
  static constexpr int COLUMNS = TAPS == 9 ? SIDE : W, LINE = COLUMNS * (CIT / 8), LINES = IMAGES * TR;  // of the image in the tile
  static constexpr int WM = COT < 32 ? 16 : 32, MT = WM / 16, M_WARPS = COT / WM, N_WARPS = CIT / 8;
  static constexpr int K_WARPS = 8 / (M_WARPS * N_WARPS), THREADS = 256;
  static constexpr int TILE = LINES * TC * PITCH, GRADS = PIXELS * G_PITCH;
  // Sixteen pixels are half a row, a row or two (TALL); so many times sixteen, one below the other, are a run.
  static constexpr int TALL = W == 8 ? 2 : 1, WIDE = W == 32 ? 2 : 1, STEPS = PIXELS / 16;
  static constexpr int SHARE = STEPS / K_WARPS < 4 / TALL ? STEPS / K_WARPS : 4 / TALL, RUN = SHARE < ROWS / TALL ? SHARE : ROWS / TALL;
};

template <int CI, int CO, int W, int STRIDE, int TAPS, int ROWS, int IMAGES, int COT, int CIT>
__global__ void __launch_bounds__(256, 2)
conv_weight(const bf16* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
            const bf16* __restrict__ grad, float* __restrict__ out, int tiles) {
  using C = Weight<CI, CO, W, STRIDE, TAPS, ROWS, IMAGES, COT, CIT>;
  extern __shared__ __align__(16) unsigned char memory[];
  bf16* both_tiles = reinterpret_cast<bf16*>(memory);
  bf16* both_grads = both_tiles + 2 * C::TILE;
  float* factors = reinterpret_cast<float*>(both_grads + 2 * C::GRADS);  // scale and shift, out of the way of sums
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int first_out = blockIdx.y * COT, first_in = blockIdx.z * CIT;
  const int m_warp = warp % C::M_WARPS, n_warp = warp / C::M_WARPS % C::N_WARPS, k_warp = warp / (C::M_WARPS * C::N_WARPS);
  const int channel = thread % (CIT / 8) * 8;
  if (scale && thread < 2 * CIT) factors[thread] = (thread < CIT ? scale : shift - CIT)[first_in + thread];

  constexpr int ROUNDS = (C::LINES * C::LINE + C::THREADS - 1) / C::THREADS;
  using Cut = Rows<C::LINE, C::THREADS>;
  // The pixel of the input that a thread brings in a round, or -1 outside of the image.
  auto source = [&](int part, int round) {
    const int first_image = IMAGES == 1 ? part / (W / ROWS) : part * IMAGES;
    const int first_row = IMAGES == 1 ? part % (W / ROWS) * ROWS : 0;
    const int line = Cut::row(round), column = Cut::within(round) / (CIT / 8);
    const int row = IMAGES == 1 ? line : line % C::TR, image = IMAGES == 1 ? 0 : line / C::TR;
    const int h = TAPS == 9 ? first_row * STRIDE + row - C::BORDER : (first_row + row) * STRIDE;
    const int w = TAPS == 9 ? column : column * STRIDE;
    return h >= 0 && h < C::SIDE ? ((first_image + image) * C::SIDE + h) * C::SIDE + w : -1;
  };
  auto place = [&](int round) {
    return (Cut::row(round) * C::TC + Cut::within(round) / (CIT / 8) + C::BORDER) * C::PITCH + channel;
  };
  auto whole = [&](int round) { return (round + 1) * C::THREADS <= C::LINES * C::LINE || Cut::row(round) < C::LINES; };
  auto bring = [&](int part, int turn) {
    constexpr int GROUPS = COT / 8;
    const int pixel = thread / GROUPS, c = thread % GROUPS * 8;
    const u32 to = shared_at(both_grads + turn * C::GRADS + pixel * C::G_PITCH + c);
    const bf16* from = grad + (part * C::PIXELS + pixel) * CO + first_out + c;
#pragma unroll
    for (int i = 0; i < C::PIXELS; i += C::THREADS / GROUPS) copy_async(to + i * C::G_PITCH * 2, from + i * CO);
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
      const int at = source(part, round);
      if (whole(round))
        copy_async_or_zero(shared_at(both_tiles + turn * C::TILE + place(round)), x + (at < 0 ? 0 : at) * CI + first_in + channel, at >= 0);
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
  auto add = [&](int t, const u32(&a)[C::MT][4], u32 b0, u32 b1) {
#pragma unroll
    for (int m = 0; m < C::MT; ++m) multiply(sums[t][m], a[m], b0, b1);
  };

  bring(blockIdx.x, 0);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    clear_border<C::LINES, C::COLUMNS, C::TC, C::BORDER, CIT, C::PITCH, C::THREADS>(both_tiles + i * C::TILE);
  __syncthreads();
  int turn = 0;
  for (int part = blockIdx.x; part < tiles; part += gridDim.x, turn ^= 1) {
    bf16* tile = both_tiles + turn * C::TILE;
    const bf16* grads = both_grads + turn * C::GRADS;
    wait<0>();
    if (scale) {
      const Activation activate(factors + channel, factors + CIT + channel);
#pragma unroll
      for (int round = 0; round < ROUNDS; ++round)
        if (whole(round)) {
          uint4* at = reinterpret_cast<uint4*>(tile + place(round));
          const uint4 active = activate(*at);
          *at = source(part, round) >= 0 ? active : make_uint4(0u, 0u, 0u, 0u);
        }
    }
    __syncthreads();  // the other tile has been worked on
    if (part + gridDim.x < tiles) bring(part + gridDim.x, turn ^ 1);
    const u32 a_at = shared_at(grads + (lane % 8 + lane / 16 * 8) * C::G_PITCH + m_warp * C::WM + lane / 8 % 2 * 8);
    constexpr u32 RIGHT = C::PITCH * 2, DOWN = C::TC * RIGHT;
    if (C::ROLL) {
#pragma unroll 1
      for (int q = k_warp; q < C::STEPS / C::RUN; q += C::K_WARPS) {
        constexpr int PER_IMAGE = ROWS / C::TALL / C::RUN, SEEN = C::TALL == 1 ? 3 : 2;
        const int image = q / C::WIDE / PER_IMAGE, row = q / C::WIDE % PER_IMAGE * C::RUN * C::TALL, left = q % C::WIDE * 16;
        const u32 g = a_at + ((image * ROWS + row) * W + left) * C::G_PITCH * 2;
        const int line = image * C::TR + row + (C::TALL == 2 ? lane % 16 / 8 : 0), column = left + lane % (16 / C::TALL);
        const u32 b_at = shared_at(tile + (line * C::TC + column) * C::PITCH + n_warp * 8), both = b_at + lane / 16 * RIGHT;
        u32 window[C::RUN + SEEN - 1][3][2];
        auto look = [&](int i) {
          u32 b[4];
          ldmatrix4_turned(b, both + i * C::TALL * DOWN);
          window[i][0][0] = b[0], window[i][0][1] = b[1], window[i][1][0] = b[2], window[i][1][1] = b[3];
          ldmatrix2_turned(window[i][2][0], window[i][2][1], b_at + i * C::TALL * DOWN + 2 * RIGHT);
        };
#pragma unroll
        for (int i = 0; i + 1 < SEEN; ++i) look(i);
#pragma unroll
        for (int i = 0; i < C::RUN; ++i) {
          u32 a[C::MT][4];
#pragma unroll
          for (int m = 0; m < C::MT; ++m) ldmatrix4_turned(a[m], g + (i * 16 * C::WIDE * C::G_PITCH + m * 16) * 2);
          look(i + SEEN - 1);
#pragma unroll
          for (int t = 0; t < TAPS; ++t) {
            const int down = t / 3, right = t % 3;
            if (C::TALL == 1) add(t, a, window[i + down % SEEN][right][0], window[i + down % SEEN][right][1]);
            else if (down == 1) add(t, a, window[i][right][1], window[i + 1][right][0]);  // a half of each of two
            else add(t, a, window[i + down / 2][right][0], window[i + down / 2][right][1]);
          }
        }
      }
    } else {
#pragma unroll 1
      for (int k = k_warp; k < C::STEPS; k += C::K_WARPS) {
        u32 a[C::MT][4];
#pragma unroll
        for (int m = 0; m < C::MT; ++m) ldmatrix4_turned(a[m], a_at + (k * 16 * C::G_PITCH + m * 16) * 2);
        const int pixel = k * 16 + lane % 16;
        const int image = pixel / (ROWS * W), row = pixel / W % ROWS, column = pixel % W;
        const u32 b_at = shared_at(tile + ((image * C::TR + row * C::STEP) * C::TC + column * C::STEP) * C::PITCH + n_warp * 8);
        u32 b[TAPS + 1][2];
#pragma unroll
        for (int t = 0; t + 1 < TAPS; t += 2) {  // two places of the window at a time
          const u32 here = t / 3 * DOWN + t % 3 * RIGHT, next = (t + 1) / 3 * DOWN + (t + 1) % 3 * RIGHT;
          u32 two[4];
          ldmatrix4_turned(two, b_at + (lane < 16 ? here : next));
          b[t][0] = two[0], b[t][1] = two[1], b[t + 1][0] = two[2], b[t + 1][1] = two[3];
        }
        ldmatrix2_turned(b[TAPS - 1][0], b[TAPS - 1][1], b_at + (TAPS == 9 ? 2 * DOWN + 2 * RIGHT : 0));
#pragma unroll
        for (int t = 0; t < TAPS; ++t) add(t, a, b[t][0], b[t][1]);
      }
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
