// What all kernels share. Images are (N, H, W, C) in bfloat16, eight channels to a load; sums are float32.

__device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ void unpack(const uint4& from, float (&to)[8]) {
  to[0] = low(from.x), to[1] = high(from.x), to[2] = low(from.y), to[3] = high(from.y);
  to[4] = low(from.z), to[5] = high(from.z), to[6] = low(from.w), to[7] = high(from.w);
}

__device__ __forceinline__ uint4 pack(const float (&v)[8]) {
  return make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
}

__device__ __forceinline__ uint4 eight(const bf16* at) { return __ldg(reinterpret_cast<const uint4*>(at)); }

__device__ __forceinline__ void eight(const float* at, float (&to)[8]) {
  const float4 a = __ldg(reinterpret_cast<const float4*>(at)), b = __ldg(reinterpret_cast<const float4*>(at) + 1);
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w, to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

// Rows of LENGTH that a block of THREADS processes in rounds. As one of the two divides the other, everything that
// depends on the round is known at compile time.
template <int LENGTH, int THREADS>
struct Rows {
  static constexpr bool LONG = LENGTH > THREADS;
  static constexpr int PER_ROW = LONG ? LENGTH / THREADS : 1, PER_ROUND = LONG ? 1 : THREADS / LENGTH;
  static_assert(LENGTH == (LONG ? PER_ROW * THREADS : THREADS / PER_ROUND), "neither divides the other");
  static __device__ __forceinline__ int row(int round) {
    return LONG ? round / PER_ROW : threadIdx.x / LENGTH + round * PER_ROUND;
  }
  static __device__ __forceinline__ int within(int round) {
    return LONG ? threadIdx.x + round % PER_ROW * THREADS : threadIdx.x % LENGTH;
  }
};

// Eight channels of relu(scale x + shift); without a scale they stay as they are.
struct Activation {
  float scale[8], shift[8];
  bool on;

  __device__ __forceinline__ Activation(const float* scales, const float* shifts, int channel) : on(scales != nullptr) {
#pragma unroll
    for (int j = 0; j < 8; ++j) scale[j] = 1.f, shift[j] = 0.f;
    if (on) eight(scales + channel, scale), eight(shifts + channel, shift);
  }

  __device__ __forceinline__ Activation(const float* scales, const float* shifts) : on(true) {  // in shared memory
#pragma unroll
    for (int j = 0; j < 8; ++j) scale[j] = scales[j], shift[j] = shifts[j];
  }

  __device__ __forceinline__ uint4 operator()(uint4 x) const {
    if (!on) return x;
    float v[8];
    unpack(x, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = fmaf(v[j], scale[j], shift[j]);
    return make_uint4(pack_positive(v[0], v[1]), pack_positive(v[2], v[3]), pack_positive(v[4], v[5]), pack_positive(v[6], v[7]));
  }
};

// Places of a tile that lie left and right of every image are zero, and stay so.
template <int LINES, int COLUMNS, int WIDTH, int LEFT, int CHANNELS, int PITCH, int THREADS>
__device__ __forceinline__ void clear_border(bf16* tile) {
  constexpr int WIDE = WIDTH - COLUMNS, ALL = LINES * WIDE * (CHANNELS / 8);
#pragma unroll
  for (int round = 0; round * THREADS < ALL; ++round) {
    const int i = threadIdx.x + round * THREADS;
    if ((round + 1) * THREADS > ALL && i >= ALL) break;
    const int which = i / (CHANNELS / 8) % (WIDE > 0 ? WIDE : 1), line = i / (CHANNELS / 8) / (WIDE > 0 ? WIDE : 1);
    const int column = LEFT && which == 0 ? 0 : WIDTH - 1;
    *reinterpret_cast<uint4*>(tile + (line * WIDTH + column) * PITCH + i % (CHANNELS / 8) * 8) = make_uint4(0u, 0u, 0u, 0u);
  }
}

// Two sums per channel over a block of threads, each of which holds those of the eight channels from
// 8 (thread mod C / 8) on; written to partial[block][2][all], from channel `first`. `room`: 16 floats a thread / 32 * C / 8.
template <int C, int THREADS>
__device__ __forceinline__ void sum_channels(float (&one)[8], float (&two)[8], float* room, float* partial, int block, int all, int first) {
  constexpr int GROUPS = C / 8;
#pragma unroll
  for (int step = 16; step >= GROUPS; step >>= 1) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      one[j] += __shfl_xor_sync(0xffffffffu, one[j], step);
      two[j] += __shfl_xor_sync(0xffffffffu, two[j], step);
    }
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();
  if (lane < GROUPS) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      room[(warp * GROUPS + lane) * 16 + j] = one[j];
      room[(warp * GROUPS + lane) * 16 + 8 + j] = two[j];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * C; i += THREADS) {
    const int which = i / C, c = i % C;
    float total = 0.f;
#pragma unroll
    for (int w = 0; w < THREADS / 32; ++w) total += room[(w * GROUPS + c / 8) * 16 + which * 8 + c % 8];
    partial[(block * 2 + which) * all + first + c] = total;
  }
}

// What the last block computes from the sums of all blocks: the record of the norm that reads the result, or, BACK,
// the factors of the gradient for what a norm has read, and the gradients for its scale and shift.
struct Norm {
  const float *given, *beta;  // scale and shift of the layer; BACK: its record
  float *first, *second;      // running mean and variance; BACK: gradients in scale and shift
  float* out;                 // (4, C): mean, 1 / deviation, scale, shift; BACK (3, C): dx = A g + B x + C
  float count, eps, momentum;
  u32* ended;                 // blocks of this launch that have ended; zero again afterwards
};

template <bool BACK>
__device__ __forceinline__ void finish_channel(const Norm& norm, int c, int channels, double one, double two) {
  if (BACK) {
    const double mean = norm.given[c], inverse = norm.given[channels + c], scale = norm.given[2 * channels + c];
    const double slope = -scale * inverse * inverse * two / norm.count;
    norm.out[c] = static_cast<float>(scale);
    norm.out[channels + c] = static_cast<float>(slope);
    norm.out[2 * channels + c] = static_cast<float>(-scale * one / norm.count - slope * mean);
    norm.first[c] = static_cast<float>(two * inverse);
    norm.second[c] = static_cast<float>(one);
  } else {
    const double mean = one / norm.count, var = fmax(two / norm.count - mean * mean, 0.);
    const double inverse = 1. / sqrt(var + norm.eps);
    const float m = static_cast<float>(mean), scale = norm.given[c] * static_cast<float>(inverse);
    norm.out[c] = m;
    norm.out[channels + c] = static_cast<float>(inverse);
    norm.out[2 * channels + c] = scale;
    norm.out[3 * channels + c] = norm.beta[c] - m * scale;
    norm.first[c] += norm.momentum * (m - norm.first[c]);
    norm.second[c] += norm.momentum * (static_cast<float>(var * norm.count / (norm.count - 1.)) - norm.second[c]);
  }
}

// Called by all threads of all blocks after `sum_channels`; parts are added in a fixed order, whichever block is last.
template <int CHANNELS, int THREADS, bool BACK>
__device__ __forceinline__ void finish(const Norm& norm, const float* partial, int parts, int blocks, double* room) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {  // its order holds for what the barriers order before and after it
    last = count_up(norm.ended) == static_cast<u32>(blocks - 1);
    if (last) *norm.ended = 0u;
  }
  __syncthreads();
  if (!last) return;
  constexpr int SHARES = THREADS / CHANNELS;
  const int c = threadIdx.x % CHANNELS, share = threadIdx.x / CHANNELS;
  double one = 0., two = 0.;
#pragma unroll 8
  for (int p = share; p < parts; p += SHARES) {
    one += __ldcg(partial + 2 * p * CHANNELS + c);
    two += __ldcg(partial + (2 * p + 1) * CHANNELS + c);
  }
  room[threadIdx.x] = one, room[THREADS + threadIdx.x] = two;
  __syncthreads();
  if (share > 0) return;
  for (int s = 1; s < SHARES; ++s) one += room[s * CHANNELS + c], two += room[THREADS + s * CHANNELS + c];
  finish_channel<BACK>(norm, c, CHANNELS, one, two);
}
