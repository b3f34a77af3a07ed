// Batch norm around the convolutions. A record is (4, C): mean, 1 / deviation, scale and shift of what is normalised.

// A g + B x + C, and `residual` where there is one. The channels of a thread stay the same.
extern "C" __global__ void __launch_bounds__(256)
norm_input(const bf16* __restrict__ g, const bf16* __restrict__ x, const float* __restrict__ factors,
           const bf16* __restrict__ residual, bf16* __restrict__ out, int channels, int chunks) {
  const int first = blockIdx.x * 256 + threadIdx.x, step = gridDim.x * 256, c = first % (channels / 8) * 8;
  float a[8], b[8], d[8];
  eight(factors + c, a), eight(factors + channels + c, b), eight(factors + 2 * channels + c, d);
  for (int i = first; i < chunks; i += step) {
    const uint4 gs = eight(g + i * 8), xs = eight(x + i * 8);
    uint4 rs = make_uint4(0u, 0u, 0u, 0u);
    if (residual) rs = eight(residual + i * 8);
    float v[8], w[8], r[8];
    unpack(gs, v), unpack(xs, w), unpack(rs, r);
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = fmaf(a[j], v[j], fmaf(b[j], w[j], d[j])) + r[j];
    *reinterpret_cast<uint4*>(out + i * 8) = pack(v);
  }
}

// relu(scale y + shift + shortcut); at stride 2 the shortcut is every other pixel of an image twice as large, with
// `before` channels of zeros in front and as many behind.
extern "C" __global__ void __launch_bounds__(256)
join(const bf16* __restrict__ y, const float* __restrict__ scale, const float* __restrict__ shift,
     const bf16* __restrict__ shortcut, bf16* __restrict__ out, int channels, int side, int stride, int before, int chunks) {
  const int inputs = channels - 2 * before, first = blockIdx.x * 256 + threadIdx.x, c = first % (channels / 8) * 8;
  const Activation active(scale, shift, c);
  for (int i = first; i < chunks; i += gridDim.x * 256) {
    const int pixel = i / (channels / 8);
    float v[8], s[8];
    unpack(eight(y + i * 8), v);
    unpack(make_uint4(0u, 0u, 0u, 0u), s);
    if (shortcut && stride == 1) unpack(eight(shortcut + i * 8), s);
    if (shortcut && stride == 2 && c >= before && c < before + inputs) {
      const int w = pixel % side * 2, h = pixel / side % side * 2, n = pixel / (side * side);
      unpack(eight(shortcut + ((n * 2 * side + h) * 2 * side + w) * inputs + c - before), s);
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = fmaxf(fmaf(v[j], active.scale[j], active.shift[j]) + s[j], 0.f);
    *reinterpret_cast<uint4*>(out + i * 8) = pack(v);
  }
}

// Mean over the pixels of each image of the activated x, in float32: one block per image, one thread per channel.
extern "C" __global__ void pool(const bf16* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
                                float* __restrict__ out, int channels, int pixels) {
  const int c = threadIdx.x;
  const bf16* at = x + blockIdx.x * pixels * channels + c;
  const float a = scale ? scale[c] : 1.f, b = scale ? shift[c] : 0.f;
  float total = 0.f;
  for (int p = 0; p < pixels; ++p) total += fmaxf(fmaf(__uint_as_float(static_cast<u32>(at[p * channels]) << 16), a, b), 0.f);
  out[blockIdx.x * channels + c] = total / pixels;
}

// The gradient of `pool`, kept where the activation of `mask` is positive, and its sums per channel, as in `conv`.
template <int CHANNELS>
__global__ void __launch_bounds__(256)
unpool(const float* __restrict__ grad, const bf16* __restrict__ mask, const float* __restrict__ mask_scale,
       const float* __restrict__ mask_shift, const bf16* __restrict__ stat, const float* __restrict__ mean,
       bf16* __restrict__ out, float* partial, int pixels, int total, Norm norm) {
  __shared__ double room[8 * CHANNELS];
  const int c = threadIdx.x % (CHANNELS / 8) * 8;
  const Activation masked(mask_scale, mask_shift, c);
  float one[8], two[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) one[j] = two[j] = 0.f;
  for (int i = blockIdx.x * 256 + threadIdx.x; i < total * (CHANNELS / 8); i += gridDim.x * 256) {
    const int image = i / (CHANNELS / 8) / pixels;
    float v[8], m[8], s[8];
    unpack(eight(mask + i * 8), m);
    unpack(eight(stat + i * 8), s);
#pragma unroll
    for (int j = 0; j < 8; ++j)
      v[j] = fmaf(m[j], masked.scale[j], masked.shift[j]) > 0.f ? grad[image * CHANNELS + c + j] / pixels : 0.f;
    const uint4 rounded = pack(v);
    *reinterpret_cast<uint4*>(out + i * 8) = rounded;
    unpack(rounded, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) one[j] += v[j], two[j] = fmaf(v[j], s[j] - mean[c + j], two[j]);
  }
  sum_channels<CHANNELS, 256>(one, two, reinterpret_cast<float*>(room), partial, blockIdx.x, CHANNELS, 0);
  finish<CHANNELS, 256, true>(norm, partial, gridDim.x, gridDim.x, room);
}
