// A convolution, or its gradient in the input (BACK), of a tile of pixels as products of small matrices.
//
// The tile and a border around it are loaded into shared memory once, activated on the way; each place of the window
// then reads it with a shift. Weights follow in stages of one column of the window and some input channels. The small
// matrices of a warp lie one below the other, so that a line read once serves all rows of the column (ROLL).
// BACK reads the gradient of the output through the window turned round; at stride 2 each place of the window then
// serves pixels of one parity of row and column (EVEN_ODD), and a small matrix holds pixels of one parity. The result is
// rounded, added to `residual`, kept where the activation of `mask` is positive, and summed per channel: itself and its
// square, or itself and its product with `stat` less `mean`.

template <int CI, int CO, int W, int STRIDE, int TAPS, int ROWS, int IMAGES, int COT, int BUFFERS, int KC, int MT, int BLOCKS, bool BACK>
struct Conv {
  static constexpr int PIXELS = IMAGES * ROWS * W, K = TAPS == 9 ? 3 : 1, BORDER = K / 2;
  static constexpr bool EVEN_ODD = BACK && STRIDE == 2;
  static constexpr int STEP = !BACK && TAPS == 9 ? STRIDE : 1;  // between pixels of the tile
  static constexpr bool ROLL = TAPS == 9 && STRIDE == 1;
  static constexpr int TR = EVEN_ODD ? ROWS / 2 + K / 2 : (ROWS - 1) * STEP + K;
  static constexpr int TC = EVEN_ODD ? W / 2 + K / 2 : (W - 1) * STEP + K;
  static constexpr int PITCH = CI + 8, SIDE = BACK ? W / STRIDE : W * STRIDE;  // of the input
  static constexpr int COLUMNS = TAPS == 1 && !BACK ? W : SIDE, LEFT = EVEN_ODD ? 0 : BORDER;  // of the image in the tile
  static constexpr int WN = COT < 32 ? 16 : 32, M_WARPS = PIXELS / (16 * MT), N_WARPS = COT / WN;
  static constexpr int THREADS = 32 * M_WARPS * N_WARPS;
  static constexpr int DEPTH = KC, STAGES = K * CI / KC;  // of weights: a column of the window, KC channels in
  static constexpr int W_ROWS = BACK ? KC : COT, W_COLUMNS = BACK ? COT : KC, W_PITCH = W_COLUMNS + 8;
  static constexpr int TAP = W_ROWS * W_PITCH, STAGE = K * TAP;
  static constexpr int OUT_PITCH = COT + 8;
  static constexpr int TILE = IMAGES * TR * TC * PITCH, OUT = PIXELS * OUT_PITCH;
  static constexpr int ROOM = TILE > OUT ? TILE : OUT;  // elements before the weights
  static constexpr int TALL = W == 8 ? 2 : 1, BELOW = TC * PITCH * 2;  // rows of a small matrix; bytes to the next line
  static_assert(!EVEN_ODD || MT == 4, "a small matrix for each parity");
  static_assert(EVEN_ODD || MT * TALL <= ROWS, "small matrices of a warp are of one image");

  // The pixel of the tile that row r of small matrix m of a warp is.
  static __device__ __forceinline__ int pixel(int m_warp, int m, int r) {
    const int n = m_warp * 16 + r;
    if (EVEN_ODD) return (n / (W / 2) * 2 + m / 2) * W + n % (W / 2) * 2 + m % 2;
    return W == 32 ? (m_warp / 2 * MT + m) * W + n % W : (m_warp * MT + m) * 16 + r;
  }
};

template <class C, int CI, int CO, int TAPS, int COT, bool BACK>
__device__ __forceinline__ void bring_weights(bf16* to, const bf16* weight, int right, int part, int first) {
  constexpr int LINE = C::W_COLUMNS / 8, CHUNKS = C::W_ROWS * LINE;
#pragma unroll
  for (int round = 0; round * C::THREADS < C::K * CHUNKS; ++round) {
    const int down = Rows<CHUNKS, C::THREADS>::row(round), i = Rows<CHUNKS, C::THREADS>::within(round);
    if ((round + 1) * C::THREADS > C::K * CHUNKS && down >= C::K) break;
    const int row = i / LINE, column = i % LINE * 8, tap = down * C::K + right, place = BACK ? TAPS - 1 - tap : tap;
    const bf16* from = BACK ? weight + ((part * C::DEPTH + row) * TAPS + place) * CO + first + column
                            : weight + ((first + row) * TAPS + place) * CI + part * C::DEPTH + column;
    copy_async(shared_at(to + down * C::TAP + row * C::W_PITCH + column), from);
  }
}

// The tile of the input, activated where there is a `scale`; many loads are under way at a time.
template <class C, int CI, int W, int STRIDE, int TAPS, int ROWS, int IMAGES, bool BACK>
__device__ __forceinline__ void bring_tile(bf16* tile, const bf16* x, const float* scale, const float* shift, int first_image, int first_row) {
  constexpr int LINE = C::COLUMNS * (CI / 8), LINES = IMAGES * C::TR;
  constexpr int ROUNDS = (LINES * LINE + C::THREADS - 1) / C::THREADS, TURNS = (ROUNDS + 9) / 10, BATCH = (ROUNDS + TURNS - 1) / TURNS;
  constexpr int STEP = TAPS == 1 && !BACK ? STRIDE : 1;  // between pixels of the input that the tile has
  using Cut = Rows<LINE, C::THREADS>;
  const int channel = threadIdx.x % (CI / 8) * 8, first = C::EVEN_ODD ? first_row / 2 : first_row * STRIDE - C::BORDER;
  auto source = [&](int line, int column) {  // or -1 outside of the image
    const int row = IMAGES == 1 ? line : line % C::TR, image = IMAGES == 1 ? 0 : line / C::TR, h = first + row * STEP;
    return h >= 0 && h < C::SIDE ? (((first_image + image) * C::SIDE + h) * C::SIDE + column * STEP) * CI + channel : -1;
  };
  if (BACK || scale == nullptr) {
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
      const int line = Cut::row(round), column = Cut::within(round) / (CI / 8);
      if ((round + 1) * C::THREADS > LINES * LINE && line >= LINES) break;
      const int from = source(line, column);
      copy_async_or_zero(shared_at(tile + (line * C::TC + column + C::LEFT) * C::PITCH + channel), x + (from < 0 ? 0 : from), from >= 0);
    }
    return;
  }
  const Activation activate(scale, shift, channel);
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    uint4 v[BATCH];
#pragma unroll
    for (int b = 0; b < BATCH; ++b) {
      const int line = Cut::row(turn * BATCH + b), from = source(line, Cut::within(turn * BATCH + b) / (CI / 8));
      if (line < LINES && from >= 0) v[b] = eight(x + from);
    }
#pragma unroll
    for (int b = 0; b < BATCH; ++b) {
      const int line = Cut::row(turn * BATCH + b), column = Cut::within(turn * BATCH + b) / (CI / 8);
      const uint4 active = source(line, column) >= 0 ? activate(v[b]) : make_uint4(0u, 0u, 0u, 0u);
      if (line < LINES) *reinterpret_cast<uint4*>(tile + (line * C::TC + column + C::LEFT) * C::PITCH + channel) = active;
    }
  }
}

template <int CI, int CO, int W, int STRIDE, int TAPS, int ROWS, int IMAGES, int COT, int BUFFERS, int KC, int MT, int BLOCKS, bool BACK>
__global__ void __launch_bounds__(Conv<CI, CO, W, STRIDE, TAPS, ROWS, IMAGES, COT, BUFFERS, KC, MT, BLOCKS, BACK>::THREADS, BLOCKS)
conv(const bf16* __restrict__ x, const bf16* __restrict__ weight, const float* __restrict__ scale,
     const float* __restrict__ shift, bf16* __restrict__ out, const bf16* __restrict__ residual,
     const bf16* __restrict__ mask, const float* __restrict__ mask_scale, const float* __restrict__ mask_shift,
     const bf16* __restrict__ stat, const float* __restrict__ mean, float* partial, Norm norm) {
  using C = Conv<CI, CO, W, STRIDE, TAPS, ROWS, IMAGES, COT, BUFFERS, KC, MT, BLOCKS, BACK>;
  extern __shared__ __align__(16) unsigned char memory[];
  bf16* tile = reinterpret_cast<bf16*>(memory);
  bf16* weights = tile + C::ROOM;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int first_image = IMAGES == 1 ? blockIdx.x / (W / ROWS) : blockIdx.x * IMAGES;
  const int first_row = IMAGES == 1 ? blockIdx.x % (W / ROWS) * ROWS : 0;
  const int first = blockIdx.y * COT;  // channel out

  constexpr bool ALL = BUFFERS == C::STAGES;
#pragma unroll
  for (int s = 0; s < (ALL ? BUFFERS : 1); ++s)
    bring_weights<C, CI, CO, TAPS, COT, BACK>(weights + s * C::STAGE, weight, s % C::K, s / C::K, first);
  bring_tile<C, CI, W, STRIDE, TAPS, ROWS, IMAGES, BACK>(tile, x, scale, shift, first_image, first_row);
  commit();
#pragma unroll
  for (int s = 1; s < (ALL ? 1 : BUFFERS - 1); ++s) {
    bring_weights<C, CI, CO, TAPS, COT, BACK>(weights + s * C::STAGE, weight, s % C::K, s / C::K, first);
    commit();
  }
  clear_border<IMAGES * C::TR, C::COLUMNS, C::TC, C::LEFT, CI, C::PITCH, C::THREADS>(tile);

  constexpr int NT = C::WN / 8;
  float sums[MT][NT][4];
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int n = 0; n < NT; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[m][n][j] = 0.f;

  const int m_warp = warp % C::M_WARPS, n_warp = warp / C::M_WARPS;
  const int pixel = C::pixel(m_warp, 0, lane % 16), row = pixel / W % ROWS, column = pixel % W;
  const int line = pixel / (ROWS * W) * C::TR + (C::EVEN_ODD ? row / 2 : row * C::STEP);
  const u32 a_at = shared_at(tile + (line * C::TC + (C::EVEN_ODD ? column / 2 : column * C::STEP)) * C::PITCH + lane / 16 * 8);
  const u32 b_at = BACK ? shared_at(weights + lane % 16 * C::W_PITCH + n_warp * C::WN + lane / 16 * 8)
                        : shared_at(weights + (n_warp * C::WN + lane % 8 + lane / 16 * 8) * C::W_PITCH + lane / 8 % 2 * 8);

  if (ALL) {
    wait<0>();
    __syncthreads();
  }
#pragma unroll 1
  for (int part = 0; part < CI / KC; ++part)
#pragma unroll
    for (int right = 0; right < C::K; ++right) {
      const int stage = part * C::K + right;
      if (!ALL) {
        wait<(ALL ? 0 : BUFFERS - 2)>();
        __syncthreads();
        const int next = stage + BUFFERS - 1;
        if (next < C::STAGES)
          bring_weights<C, CI, CO, TAPS, COT, BACK>(weights + next % BUFFERS * C::STAGE, weight, next % C::K, next / C::K, first);
        commit();
      }
#pragma unroll
      for (int k = 0; k < KC / 16; ++k) {
        const u32 look = a_at + (part * KC + k * 16) * 2 + (C::EVEN_ODD ? 0 : right * C::PITCH * 2);
        u32 b[C::K][NT / 2][4];
#pragma unroll
        for (int down = 0; down < C::K; ++down)
#pragma unroll
          for (int n = 0; n < NT / 2; ++n) {
            const u32 at = b_at + (stage % BUFFERS * C::STAGE + down * C::TAP) * 2;
            if (BACK) ldmatrix4_turned(b[down][n], at + (k * 16 * C::W_PITCH + n * 16) * 2);
            else ldmatrix4(b[down][n], at + (n * 16 * C::W_PITCH + k * 16) * 2);
          }
        auto add = [&](int m, int down, const u32(&a)[4]) {
#pragma unroll
          for (int n = 0; n < NT; ++n) multiply(sums[m][n], a, b[down][n / 2][n % 2 * 2], b[down][n / 2][n % 2 * 2 + 1]);
        };
        if (C::ROLL && C::TALL == 1) {
#pragma unroll
          for (int r = 0; r < MT + 2; ++r) {
            u32 a[4];
            ldmatrix4(a, look + r * C::BELOW);
#pragma unroll
            for (int down = 0; down < C::K; ++down)
              if (r - down >= 0 && r - down < MT) add(r - down, down, a);
          }
        } else if (C::ROLL) {  // two rows to a small matrix: one row down is a half of each of two
          u32 a[MT + 1][4];
          ldmatrix4(a[0], look);
#pragma unroll
          for (int m = 0; m < MT; ++m) {
            ldmatrix4(a[m + 1], look + (m + 1) * 2 * C::BELOW);
            const u32 between[4] = {a[m][1], a[m + 1][0], a[m][3], a[m + 1][2]};
            add(m, 0, a[m]);
            add(m, 1 % C::K, between);
            add(m, 2 % C::K, a[m + 1]);
          }
        } else {
#pragma unroll
          for (int down = 0; down < C::K; ++down)
#pragma unroll
            for (int m = 0; m < MT; ++m) {
              // EVEN_ODD: two lines, and two columns, of pixels see one of the tile, if a place of the window sees any.
              const int line = C::EVEN_ODD ? m / 2 + down + (TAPS == 1) - 1 : m * C::TALL * C::STEP + down;
              const int column = m % 2 + right + (TAPS == 1) - 1;
              if (C::EVEN_ODD && (line % 2 || column % 2)) continue;
              u32 a[4];
              ldmatrix4(a, C::EVEN_ODD ? look + line / 2 * C::BELOW + column / 2 * C::PITCH * 2 : look + line * C::BELOW);
              add(m, down, a);
            }
        }
      }
    }

  // What is added and compared is on its way while sums are turned round in shared memory.
  constexpr int GROUPS = COT / 8, ROUNDS = C::PIXELS * GROUPS / C::THREADS, BATCH = ROUNDS < 4 ? 2 : 4;
  const int channel = thread % GROUPS * 8;
  auto pixel_of = [&](int round) { return thread / GROUPS + round * (C::THREADS / GROUPS); };
  auto place = [&](int round) { return (blockIdx.x * C::PIXELS + pixel_of(round)) * CO + first + channel; };
  uint4 added[BATCH], seen[BATCH];
  auto bring = [&](int from) {
    if (residual)
#pragma unroll
      for (int i = 0; i < BATCH; ++i) added[i] = eight(residual + place(from + i));
    if (BACK && mask)
#pragma unroll
      for (int i = 0; i < BATCH; ++i) seen[i] = eight(mask + place(from + i));
  };

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
  bring(0);
  const Activation masked(BACK ? mask_scale : nullptr, mask_shift, first + channel);
  float one[8], two[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) one[j] = two[j] = 0.f;
  __syncthreads();

#pragma unroll 1
  for (int from = 0; from < ROUNDS; from += BATCH) {
    if (from > 0) bring(from);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      uint4 rounded = *reinterpret_cast<const uint4*>(tile + pixel_of(from + i) * C::OUT_PITCH + channel);
      float v[8], other[8];
      unpack(rounded, v);
      if (residual) {
        unpack(added[i], other);
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] += other[j];
      }
      if (BACK && mask) {
        unpack(seen[i], other);
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = fmaf(other[j], masked.scale[j], masked.shift[j]) > 0.f ? v[j] : 0.f;
      }
      if (residual || (BACK && mask)) rounded = pack(v);
      *reinterpret_cast<uint4*>(out + place(from + i)) = rounded;
      added[i] = rounded;
      if (BACK && stat && stat != mask) seen[i] = eight(stat + place(from + i));
    }
    if (partial)
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        float v[8], other[8];
        unpack(added[i], v), unpack(BACK ? seen[i] : added[i], other);
#pragma unroll
        for (int j = 0; j < 8; ++j) one[j] += v[j], two[j] = fmaf(v[j], other[j], two[j]);
      }
  }
  if (partial) {
    if (BACK) {
      float centre[8];
      eight(mean + first + channel, centre);
#pragma unroll
      for (int j = 0; j < 8; ++j) two[j] = fmaf(-one[j], centre[j], two[j]);
    }
    sum_channels<COT, C::THREADS>(one, two, reinterpret_cast<float*>(memory), partial, blockIdx.x, CO, first);
    finish<CO, C::THREADS, BACK>(norm, partial, gridDim.x, gridDim.x * gridDim.y, reinterpret_cast<double*>(memory));
  }
}
