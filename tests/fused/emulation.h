// CUDA on a CPU, enough of it for the kernels of dubito._fused, to check what they compute and not how fast.
//
// Blocks run one after the other. The threads of a block are fibers that take turns: at a barrier, and where a warp acts
// together, a fiber waits for the others. Shared memory holds NaN until it is written. Asynchronous copies happen when
// they are waited for, no sooner, so that a wait that is missing shows. `turned` runs threads in the other order.

#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <ucontext.h>
#include <utility>
#include <vector>

using std::fmax;
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct Three { int x, y, z; };
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }

#define __device__
#define __global__ static
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __shared__ static

static Three threadIdx, blockIdx, blockDim, gridDim;
static unsigned char* shared_memory;

namespace emulation {

struct Copy { unsigned to; const void* from; };
struct Fiber {
  ucontext_t context;
  jmp_buf place;
  std::vector<char> stack;
  std::vector<std::vector<Copy>> groups;  // copies on their way, the last group still open
  bool begun, done;
  long turns;  // of its warp that it has taken part in
};
struct Warp { unsigned given[2][32][8]; int arrived; long turns; };

static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static jmp_buf scheduler;
static int current, waiting, alive;
static long barriers;
static void (*body)();

static void others() {  // jumps are quicker than swaps of contexts, which ask the system each time
  if (!_setjmp(fibers[current].place)) _longjmp(scheduler, 1);
}

static void turn() {
  if (_setjmp(scheduler)) return;
  Fiber& fiber = fibers[current];
  if (fiber.begun) _longjmp(fiber.place, 1);
  fiber.begun = true;
  setcontext(&fiber.context);
}

static void enter() {
  body();
  fibers[current].done = true;
  --alive;
  others();
}

// All lanes give numbers and see those of all: those of `lane` are at the place of the lane.
static const unsigned (*together(const unsigned* mine, int count))[8] {
  Fiber& fiber = fibers[current];
  Warp& warp = warps[threadIdx.x / 32];
  const int side = fiber.turns % 2;
  std::memcpy(warp.given[side][threadIdx.x % 32], mine, count * sizeof(unsigned));
  const long turn = ++fiber.turns;
  if (++warp.arrived == 32) warp.arrived = 0, ++warp.turns;
  while (warp.turns < turn) others();
  return warp.given[side];
}

static float number(unsigned short bits) {
  const unsigned wide = static_cast<unsigned>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

static unsigned rounded(float value) {  // to bfloat16, ties to even
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  if (value != value) return 0x7fffu;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

static void threads(int count, bool turned) {
  fibers.resize(count);
  warps.assign(count / 32, Warp{});
  alive = count, waiting = 0, barriers = 0;
  for (Fiber& fiber : fibers) {
    fiber.stack.resize(1 << 16);
    fiber.groups.assign(1, {});
    fiber.begun = fiber.done = false, fiber.turns = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
  }
  while (alive > 0)
    for (int i = 0; i < count; ++i) {
      current = turned ? count - 1 - i : i;
      threadIdx.x = current;
      if (!fibers[current].done) turn();
    }
}

template <class... A, std::size_t... I>
static void call(void (*kernel)(A...), void** given, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_reference_t<A>*>(given[I])...);
}

template <class... A>
static void start(void (*kernel)(A...), const int* shape, int count, int shared, void** given, bool turned) {
  static std::tuple<void (*)(A...), void**> what;
  what = {kernel, given};
  body = [] { call(std::get<0>(what), std::get<1>(what), std::index_sequence_for<A...>{}); };
  std::vector<unsigned char> room(shared + 16);
  shared_memory = room.data() + (16 - reinterpret_cast<std::uintptr_t>(room.data()) % 16);
  gridDim = {shape[0], shape[1], shape[2]}, blockDim = {count, 1, 1};
  for (blockIdx.z = 0; blockIdx.z < shape[2]; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < shape[1]; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < shape[0]; ++blockIdx.x) {
        std::memset(room.data(), 0xff, room.size());
        threads(count, turned);
      }
}

}  // namespace emulation

static void __syncthreads() {
  using namespace emulation;
  const long mine = barriers;
  if (++waiting == alive) waiting = 0, ++barriers;
  while (barriers == mine) others();
}

template <class T> static T __ldg(const T* at) { return *at; }
template <class T> static T __ldcg(const T* at) { return *at; }
static unsigned count_up(unsigned* at) { return std::exchange(*at, *at + 1); }
static float __uint_as_float(unsigned bits) { float value; std::memcpy(&value, &bits, 4); return value; }

static float __shfl_xor_sync(unsigned, float value, int lanes) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return __uint_as_float(emulation::together(&bits, 1)[threadIdx.x % 32 ^ lanes][0]);
}

// What machine.cuh has.
typedef unsigned int u32;
typedef unsigned short bf16;
static unsigned pack(float low, float high) { return emulation::rounded(low) | emulation::rounded(high) << 16; }
static unsigned pack_positive(float low, float high) { return pack(low > 0.f ? low : 0.f, high > 0.f ? high : 0.f); }
static unsigned shared_at(const void* at) { return static_cast<const unsigned char*>(at) - shared_memory; }

// Small matrices of 8 x 8: lane 8 m + r says where row r of matrix m is; each lane gets two neighbours of each.
template <int COUNT, bool TURNED>
static void matrices(unsigned* to, unsigned at) {
  const unsigned (*where)[8] = emulation::together(&at, 1);
  const int lane = threadIdx.x % 32;
  for (int m = 0; m < COUNT; ++m) {
    unsigned short pair[2];
    for (int j = 0; j < 2; ++j) {
      const int row = TURNED ? lane % 4 * 2 + j : lane / 4, column = TURNED ? lane / 4 : lane % 4 * 2 + j;
      std::memcpy(&pair[j], shared_memory + where[8 * m + row][0] + 2 * column, 2);
    }
    to[m] = pair[0] | static_cast<unsigned>(pair[1]) << 16;
  }
}
static void ldmatrix4(unsigned (&to)[4], unsigned at) { matrices<4, false>(to, at); }
static void ldmatrix4_turned(unsigned (&to)[4], unsigned at) { matrices<4, true>(to, at); }
static void ldmatrix2_turned(unsigned& first, unsigned& second, unsigned at) {
  unsigned both[2];
  matrices<2, true>(both, at);
  first = both[0], second = both[1];
}

static void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  const unsigned mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const unsigned (*all)[8] = emulation::together(mine, 6);
  const int lane = threadIdx.x % 32;
  for (int j = 0; j < 4; ++j) {
    const int row = lane / 4 + j / 2 * 8, column = lane % 4 * 2 + j % 2;
    for (int k = 0; k < 16; ++k) {
      const unsigned left = all[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
      const unsigned right = all[column * 4 + k % 8 / 2][4 + k / 8];
      d[j] += emulation::number(left >> k % 2 * 16) * emulation::number(right >> k % 2 * 16);
    }
  }
}

static void copy_async(unsigned to, const void* from) { emulation::fibers[emulation::current].groups.back().push_back({to, from}); }
static void copy_async_or_zero(unsigned to, const void* from, bool copied) { copy_async(to, copied ? from : nullptr); }
static void commit() { emulation::fibers[emulation::current].groups.emplace_back(); }
template <int LEFT>
static void wait() {
  auto& groups = emulation::fibers[emulation::current].groups;  // the last is open, and not counted
  while (groups.size() > LEFT + 1u) {
    for (const auto& copy : groups.front()) {
      if (copy.from) std::memcpy(shared_memory + copy.to, copy.from, 16);
      else std::memset(shared_memory + copy.to, 0, 16);
    }
    groups.erase(groups.begin());
  }
}
