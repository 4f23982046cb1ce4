// A two-layer network on the GPU with plain kernels: y = w2 tanh(w1 x + b1) + b2. Sums have a fixed order, so that
// equal inputs give equal bits on every GPU of one kind.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA_CHECK(call)                                                                                         \
  do {                                                                                                           \
    const cudaError_t error = (call);                                                                            \
    if (error != cudaSuccess) {                                                                                  \
      std::fprintf(stderr, "nccl_mlp: %s: %s: %s\n", #call, cudaGetErrorName(error), cudaGetErrorString(error)); \
      std::exit(error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ? 77 : 1);                    \
    }                                                                                                            \
  } while (0)

/// Returns a number in [-1, 1) that depends only on `place` and `seed`.
__host__ __device__ inline float noise(std::uint64_t seed, std::uint64_t place) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15ULL + place + 1;  // splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  x ^= x >> 31;
  return static_cast<float>(static_cast<std::int64_t>(x) >> 40) * 0x1p-23F;
}

__global__ void fill(float* values, std::size_t count, float scale, std::uint64_t seed) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i < count) {
    values[i] = scale * noise(seed, i);
  }
}

constexpr int kTile = 16;

/// Computes c[m][n] = op(a) op(b). With `a_turned`, op(a)[m][k] is stored as a[k][m]; with `b_turned`, op(b)[k][n] as
/// b[n][k].
template <bool a_turned, bool b_turned>
__global__ void multiply(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float left[kTile][kTile + 1], right[kTile][kTile + 1];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int first = 0; first < k; first += kTile) {
    const int x = first + threadIdx.x, y = first + threadIdx.y;
    left[threadIdx.y][threadIdx.x] = row < m && x < k ? a[a_turned ? x * m + row : row * k + x] : 0.0F;
    right[threadIdx.y][threadIdx.x] = column < n && y < k ? b[b_turned ? column * k + y : y * n + column] : 0.0F;
    __syncthreads();
    for (int i = 0; i < kTile; ++i) {
      sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    }
    __syncthreads();
  }
  if (row < m && column < n) {
    c[row * n + column] = sum;
  }
}

/// Computes values[row][column] += bias[column], then tanh if `squash`.
__global__ void add_bias(float* values, const float* bias, int rows, int columns, bool squash) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows * columns) {
    const float sum = values[i] + bias[i % columns];
    values[i] = squash ? tanhf(sum) : sum;
  }
}

/// Computes gradient[column] = sum of error[row][column] over the rows, in order.
__global__ void sum_rows(const float* error, float* gradient, int rows, int columns) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column < columns) {
    float sum = 0;
    for (int row = 0; row < rows; ++row) {
      sum += error[row * columns + column];
    }
    gradient[column] = sum;
  }
}

/// Computes error = (output - target) / elements; one block writes the mean squared error to *loss.
__global__ void compare(const float* output, const float* target, float* error, int elements, float* loss) {
  __shared__ float partial[256];
  float sum = 0;
  for (int i = threadIdx.x; i < elements; i += 256) {
    const float difference = output[i] - target[i];
    error[i] = difference / static_cast<float>(elements);
    sum += difference * difference;
  }
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int stride = 128; stride > 0; stride /= 2) {
    if (threadIdx.x < stride) {
      partial[threadIdx.x] += partial[threadIdx.x + stride];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    *loss = partial[0] / static_cast<float>(elements);
  }
}

__global__ void through_tanh(float* error, const float* hidden, int elements) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < elements) {
    error[i] *= 1 - hidden[i] * hidden[i];
  }
}

__global__ void descend(float* value, float* velocity, const float* gradient, std::size_t count, float rate) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i < count) {
    velocity[i] = 0.9F * velocity[i] + gradient[i];
    value[i] -= rate * velocity[i];
  }
}

constexpr int kInputs = 256, kHidden = 1024, kOutputs = 256, kBatch = 64;

struct Tensor {
  const char* name;
  std::size_t count;
  float *value, *gradient, *velocity;
};

inline float* device_floats(std::size_t count) {
  float* memory = nullptr;
  CUDA_CHECK(cudaMalloc(&memory, count * sizeof(float)));
  CUDA_CHECK(cudaMemset(memory, 0, count * sizeof(float)));
  CUDA_CHECK(cudaDeviceSynchronize());  // streams of the job do not wait for this by themselves
  return memory;
}

inline dim3 blocks(std::size_t count) { return dim3(static_cast<unsigned>((count + 255) / 256)); }

class Network {
 public:
  explicit Network(std::uint64_t seed, cudaStream_t stream) : stream_(stream) {
    add("w1", std::size_t{kInputs} * kHidden, 1.7F / 16, seed);
    add("b1", kHidden, 0.1F, seed + 1);
    add("w2", std::size_t{kHidden} * kOutputs, 1.7F / 32, seed + 2);
    add("b2", kOutputs, 0.1F, seed + 3);
    hidden_ = device_floats(std::size_t{kBatch} * kHidden);
    output_ = device_floats(std::size_t{kBatch} * kOutputs);
    hidden_error_ = device_floats(std::size_t{kBatch} * kHidden);
    output_error_ = device_floats(std::size_t{kBatch} * kOutputs);
    loss_ = device_floats(1);
  }

  std::vector<Tensor> tensors;

  const float* forward(const float* input) {
    product<false, false>(input, tensors[0].value, hidden_, kBatch, kHidden, kInputs);
    add_bias<<<blocks(kBatch * kHidden), 256, 0, stream_>>>(hidden_, tensors[1].value, kBatch, kHidden, true);
    product<false, false>(hidden_, tensors[2].value, output_, kBatch, kOutputs, kHidden);
    add_bias<<<blocks(kBatch * kOutputs), 256, 0, stream_>>>(output_, tensors[3].value, kBatch, kOutputs, false);
    return output_;
  }

  /// Computes the gradients of half the mean squared error; the error itself is then in loss().
  void backward(const float* input, const float* target) {
    compare<<<1, 256, 0, stream_>>>(output_, target, output_error_, kBatch * kOutputs, loss_);
    sum_rows<<<blocks(kOutputs), 256, 0, stream_>>>(output_error_, tensors[3].gradient, kBatch, kOutputs);
    product<true, false>(hidden_, output_error_, tensors[2].gradient, kHidden, kOutputs, kBatch);
    product<false, true>(output_error_, tensors[2].value, hidden_error_, kBatch, kHidden, kOutputs);
    through_tanh<<<blocks(kBatch * kHidden), 256, 0, stream_>>>(hidden_error_, hidden_, kBatch * kHidden);
    sum_rows<<<blocks(kHidden), 256, 0, stream_>>>(hidden_error_, tensors[1].gradient, kBatch, kHidden);
    product<true, false>(input, hidden_error_, tensors[0].gradient, kInputs, kHidden, kBatch);
    CUDA_CHECK(cudaGetLastError());
  }

  void step(float rate) {
    for (const Tensor& t : tensors) {
      descend<<<blocks(t.count), 256, 0, stream_>>>(t.value, t.velocity, t.gradient, t.count, rate);
    }
    CUDA_CHECK(cudaGetLastError());
  }

  float* loss() { return loss_; }

  /// Returns a hash of the parameters' bits.
  std::uint64_t fingerprint() const {
    std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a over 32-bit words
    for (const Tensor& t : tensors) {
      std::vector<std::uint32_t> words(t.count);
      CUDA_CHECK(cudaMemcpy(words.data(), t.value, t.count * sizeof(float), cudaMemcpyDeviceToHost));
      for (const std::uint32_t word : words) {
        hash = (hash ^ word) * 1099511628211ULL;
      }
    }
    return hash;
  }

 private:
  void add(const char* name, std::size_t count, float scale, std::uint64_t seed) {
    tensors.push_back({name, count, device_floats(count), device_floats(count), device_floats(count)});
    fill<<<blocks(count), 256, 0, stream_>>>(tensors.back().value, count, scale, seed);
    CUDA_CHECK(cudaGetLastError());
  }

  template <bool a_turned, bool b_turned>
  void product(const float* a, const float* b, float* c, int m, int n, int k) {
    const dim3 grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile);
    multiply<a_turned, b_turned><<<grid, dim3(kTile, kTile), 0, stream_>>>(a, b, c, m, n, k);
  }

  cudaStream_t stream_;
  float *hidden_, *output_, *hidden_error_, *output_error_, *loss_;
};
