// The only place that depends on the compiler of the kernels: nvcc, or g++ for the tests' SIMT emulator, whose header
// only tests put on the include path. Kernels use the names below and nothing of CUDA.
// Warp operations need all 32 lanes of the warp, sync() all threads of the block. Blocks have kThreads threads.
#ifndef GRADWIRE_KERNELS_DEVICE_SIMT_HPP
#define GRADWIRE_KERNELS_DEVICE_SIMT_HPP

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "gradwire/error.hpp"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define GRADWIRE_KERNEL __global__ __launch_bounds__(256) void
#define GRADWIRE_KERNEL_OF(blocks) __global__ __launch_bounds__(256, blocks) void  // `blocks` must fit on a processor
#define GRADWIRE_PARAMETER(T) __grid_constant__ T const
#define GRADWIRE_DEVICE __device__ __forceinline__
#define GRADWIRE_SHARED __shared__
#define GRADWIRE_UNROLL _Pragma("unroll")
#define GRADWIRE_ROLLED _Pragma("unroll 1")
#else
#include "simt_emulator.hpp"
#define GRADWIRE_KERNEL inline void
#define GRADWIRE_KERNEL_OF(blocks) inline void
#define GRADWIRE_PARAMETER(T) T const&
#define GRADWIRE_DEVICE inline
#define GRADWIRE_SHARED static thread_local
#define GRADWIRE_UNROLL
#define GRADWIRE_ROLLED
#endif

namespace gradwire::kernels::simt {

inline constexpr std::uint32_t kLanes = 32;
inline constexpr std::uint32_t kThreads = 256;
inline constexpr std::uint32_t kWarps = kThreads / kLanes;

struct Words2 {
  std::uint32_t word[2];
};
struct Words4 {
  std::uint32_t word[4];
};

#if defined(__CUDACC__)

inline constexpr std::uint32_t kAllLanes = 0xFFFFFFFFU;
/// Most blocks of a kernel; with more tiles, blocks take several each. The number is large enough that the last blocks
/// to end leave few processors idle.
inline constexpr std::uint32_t kMostBlocks = 1U << 16;

GRADWIRE_DEVICE std::uint32_t thread() { return threadIdx.x; }
GRADWIRE_DEVICE std::uint32_t block() { return blockIdx.x; }
GRADWIRE_DEVICE std::uint32_t blocks() { return gridDim.x; }
GRADWIRE_DEVICE void sync() { __syncthreads(); }
GRADWIRE_DEVICE bool sync_or(bool value) { return __syncthreads_or(value ? 1 : 0) != 0; }
GRADWIRE_DEVICE void sync_warp() { __syncwarp(); }

/// out[i] <- in[i] of lane (this ^ mask).
template <class T, int kCount>
GRADWIRE_DEVICE void shuffle_xor(const T (&in)[kCount], std::uint32_t mask, T (&out)[kCount]) {
  GRADWIRE_UNROLL
  for (int i = 0; i < kCount; ++i) {
    out[i] = __shfl_xor_sync(kAllLanes, in[i], static_cast<int>(mask));
  }
}
template <class T>
GRADWIRE_DEVICE T shuffle(T value, std::uint32_t lane) {
  return __shfl_sync(kAllLanes, value, static_cast<int>(lane));
}
/// The value of lane - distance; lanes below `distance` keep their own.
template <class T>
GRADWIRE_DEVICE T shuffle_up(T value, std::uint32_t distance) {
  return __shfl_up_sync(kAllLanes, value, distance);
}
GRADWIRE_DEVICE std::uint32_t ballot(bool value) { return __ballot_sync(kAllLanes, value ? 1 : 0); }
GRADWIRE_DEVICE std::uint32_t warp_max(std::uint32_t value) { return __reduce_max_sync(kAllLanes, value); }
GRADWIRE_DEVICE std::int32_t warp_sum(std::int32_t value) { return __reduce_add_sync(kAllLanes, value); }
GRADWIRE_DEVICE void atomic_or(std::uint32_t* word, std::uint32_t bits) { atomicOr(word, bits); }
GRADWIRE_DEVICE void atomic_max(std::uint32_t* word, std::uint32_t value) { atomicMax(word, value); }
GRADWIRE_DEVICE void atomic_add(std::uint32_t* word, std::uint32_t value) { atomicAdd(word, value); }
/// Adds 1 and returns the value before.
GRADWIRE_DEVICE std::uint32_t atomic_next(std::uint32_t* word) { return atomicAdd(word, 1U); }
GRADWIRE_DEVICE std::uint32_t set_bits(std::uint32_t word) { return static_cast<std::uint32_t>(__popc(word)); }
/// The number of the lowest bit that is set; at least one must be.
GRADWIRE_DEVICE std::uint32_t lowest_bit(std::uint32_t word) { return static_cast<std::uint32_t>(__ffs(word) - 1); }
/// Prefetches the bytes at `from`, which are read later.
GRADWIRE_DEVICE void prefetch(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

/// Builds a word from bytes of two words: nibble i of `selector` (0 to 7, the low word first) names the byte at i.
GRADWIRE_DEVICE std::uint32_t permute(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  return __byte_perm(low, high, selector);
}
/// Byte `index` (0 to 7) of two words, the low one first.
GRADWIRE_DEVICE std::uint32_t byte_of(std::uint32_t low, std::uint32_t high, std::uint32_t index) {
  return __byte_perm(low, high, 0x4440U | index) & 0xFFU;
}

// Accesses whose address is a multiple of their size.
GRADWIRE_DEVICE Words4 load16(const void* from) {
  const uint4 v = *static_cast<const uint4*>(from);
  return {{v.x, v.y, v.z, v.w}};
}
GRADWIRE_DEVICE Words2 load8(const void* from) {
  const uint2 v = *static_cast<const uint2*>(from);
  return {{v.x, v.y}};
}
GRADWIRE_DEVICE std::uint32_t load4(const void* from) { return *static_cast<const std::uint32_t*>(from); }
GRADWIRE_DEVICE std::uint16_t load2(const void* from) { return *static_cast<const std::uint16_t*>(from); }
GRADWIRE_DEVICE std::uint8_t load1(const void* from) { return *static_cast<const std::uint8_t*>(from); }
GRADWIRE_DEVICE void store16(void* to, const Words4& v) {
  *static_cast<uint4*>(to) = make_uint4(v.word[0], v.word[1], v.word[2], v.word[3]);
}
GRADWIRE_DEVICE void store8(void* to, const Words2& v) { *static_cast<uint2*>(to) = make_uint2(v.word[0], v.word[1]); }
GRADWIRE_DEVICE void store4(void* to, std::uint32_t v) { *static_cast<std::uint32_t*>(to) = v; }
GRADWIRE_DEVICE void store2(void* to, std::uint16_t v) { *static_cast<std::uint16_t*>(to) = v; }
GRADWIRE_DEVICE void store1(void* to, std::uint8_t v) { *static_cast<std::uint8_t*>(to) = v; }

// These functions access a word that other devices or the host access at the same time. A thread that reads a released
// value by an acquiring load also sees everything that the releasing block stored before, if that block had a barrier
// between those stores and the release.
GRADWIRE_DEVICE void store_release(std::uint32_t* to, std::uint32_t v) {
  asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
GRADWIRE_DEVICE std::uint32_t load_acquire(const std::uint32_t* from) {
  std::uint32_t v = 0;
  asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
GRADWIRE_DEVICE void store_relaxed(std::uint32_t* to, std::uint32_t v) {
  asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
GRADWIRE_DEVICE std::uint32_t load_relaxed(const std::uint32_t* from) {
  std::uint32_t v = 0;
  asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
/// A loop that waits for such a word calls this each time, and looks for reasons to give up every kSpins-th time, since
/// these cost more to read.
GRADWIRE_DEVICE void pause() {}
inline constexpr std::uint32_t kSpins = 1024;
/// A clock that all processors share. It may advance by a microsecond at a time.
GRADWIRE_DEVICE std::uint64_t nanoseconds() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/// Enqueues kernel<<<blocks, kThreads>>>(arguments...) on `stream`, a cudaStream_t. Error(internal) with CUDA's text.
template <class... Parameters>
void launch(const char* name, void (*kernel)(Parameters...), std::uint32_t blocks, void* stream,
            const std::type_identity_t<std::remove_cv_t<Parameters>>&... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  const cudaError_t error = cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(kThreads),
                                             pointers, 0, static_cast<cudaStream_t>(stream));
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // otherwise the job's next launch would report it
    throw Error(ErrorCode::internal, std::string("kernel ") + name + " was not launched: " + cudaGetErrorName(error) +
                                         ": " + cudaGetErrorString(error));
  }
}

/// The number of blocks of the kernel that the current device can run at once. Error(internal) with CUDA's text.
template <class... Parameters>
std::uint32_t resident_blocks(const char* name, void (*kernel)(Parameters...)) {
  int device = 0;
  int processors = 0;
  int each = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error == cudaSuccess) {
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, static_cast<int>(kThreads), 0);
  }
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw Error(ErrorCode::internal, std::string("the occupancy of kernel ") + name +
                                         " is unknown: " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
  }
  return static_cast<std::uint32_t>(processors) * static_cast<std::uint32_t>(each);
}

/// Loads the kernel's code onto the current device. Otherwise its first launch does that, and may wait for all work on
/// the device. Error(internal) with CUDA's text.
inline void load_kernel(const char* name, const void* kernel) {
  cudaFuncAttributes attributes{};
  if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw Error(ErrorCode::internal, std::string("kernel ") + name + " cannot be loaded: " + cudaGetErrorName(error) +
                                         ": " + cudaGetErrorString(error));
  }
}

#else

inline constexpr std::uint32_t kMostBlocks = 2;  // so that blocks take several tiles

inline std::uint32_t thread() { return emulator::thread(); }
inline std::uint32_t block() { return emulator::block(); }
inline std::uint32_t blocks() { return emulator::blocks(); }
inline void sync() { emulator::sync("sync"); }
inline bool sync_or(bool value) { return emulator::sync_or(value); }
inline void sync_warp() { emulator::exchange("sync_warp", 0); }

template <class T, int kCount>
void shuffle_xor(const T (&in)[kCount], std::uint32_t mask, T (&out)[kCount]) {
  struct All {
    T value[kCount];
  } all;
  std::memcpy(&all, in, sizeof all);
  const All other = emulator::exchange("shuffle_xor", all)[emulator::lane() ^ mask];
  std::memcpy(out, &other, sizeof all);
}
template <class T>
T shuffle(T value, std::uint32_t lane) {
  return emulator::exchange("shuffle", value)[lane % kLanes];
}
template <class T>
T shuffle_up(T value, std::uint32_t distance) {
  const std::uint32_t lane = emulator::lane();
  return emulator::exchange("shuffle_up", value)[lane < distance ? lane : lane - distance];
}
inline std::uint32_t ballot(bool value) {
  const auto lanes = emulator::exchange("ballot", value);
  std::uint32_t bits = 0;
  for (std::uint32_t i = 0; i < kLanes; ++i) {
    bits |= lanes[i] ? 1U << i : 0U;
  }
  return bits;
}
inline std::uint32_t warp_max(std::uint32_t value) {
  const auto lanes = emulator::exchange("warp_max", value);
  std::uint32_t most = 0;
  for (std::uint32_t i = 0; i < kLanes; ++i) {
    most = lanes[i] > most ? lanes[i] : most;
  }
  return most;
}
inline std::int32_t warp_sum(std::int32_t value) {
  const auto lanes = emulator::exchange("warp_sum", value);
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < kLanes; ++i) {
    sum += static_cast<std::uint32_t>(lanes[i]);
  }
  return static_cast<std::int32_t>(sum);
}
inline void atomic_or(std::uint32_t* word, std::uint32_t bits) { *word |= bits; }
inline void atomic_max(std::uint32_t* word, std::uint32_t value) { *word = value > *word ? value : *word; }
inline void atomic_add(std::uint32_t* word, std::uint32_t value) { *word += value; }
inline std::uint32_t atomic_next(std::uint32_t* word) { return (*word)++; }
inline std::uint32_t set_bits(std::uint32_t word) { return static_cast<std::uint32_t>(__builtin_popcount(word)); }
inline std::uint32_t lowest_bit(std::uint32_t word) { return static_cast<std::uint32_t>(__builtin_ctz(word)); }
inline void prefetch(const void* /*from*/) {}
inline std::uint32_t byte_of(std::uint32_t low, std::uint32_t high, std::uint32_t index) {
  return ((index < 4 ? low : high) >> (8 * (index % 4))) & 0xFFU;
}
inline std::uint32_t permute(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  std::uint32_t bytes = 0;
  for (std::uint32_t i = 0; i < 4; ++i) {
    bytes |= byte_of(low, high, (selector >> (4 * i)) & 7U) << (8 * i);
  }
  return bytes;
}

inline Words4 load16(const void* from) { return emulator::aligned_load<Words4>(from); }
inline Words2 load8(const void* from) { return emulator::aligned_load<Words2>(from); }
inline std::uint32_t load4(const void* from) { return emulator::aligned_load<std::uint32_t>(from); }
inline std::uint16_t load2(const void* from) { return emulator::aligned_load<std::uint16_t>(from); }
inline std::uint8_t load1(const void* from) { return emulator::aligned_load<std::uint8_t>(from); }
inline void store16(void* to, const Words4& v) { emulator::aligned_store(to, v); }
inline void store8(void* to, const Words2& v) { emulator::aligned_store(to, v); }
inline void store4(void* to, std::uint32_t v) { emulator::aligned_store(to, v); }
inline void store2(void* to, std::uint16_t v) { emulator::aligned_store(to, v); }
inline void store1(void* to, std::uint8_t v) { emulator::aligned_store(to, v); }

inline void store_release(std::uint32_t* to, std::uint32_t v) {
  emulator::release();
  *to = v;
}
inline std::uint32_t load_acquire(const std::uint32_t* from) { return *from; }
inline void store_relaxed(std::uint32_t* to, std::uint32_t v) { *to = v; }
inline std::uint32_t load_relaxed(const std::uint32_t* from) { return *from; }
inline void pause() { emulator::pause(); }
inline constexpr std::uint32_t kSpins = 4;
inline std::uint64_t nanoseconds() { return emulator::nanoseconds(); }

template <class... Parameters>
void launch(const char* name, void (*kernel)(Parameters...), std::uint32_t blocks, void* stream,
            const std::type_identity_t<std::remove_cvref_t<Parameters>>&... arguments) {
  emulator::check_loaded(name, reinterpret_cast<const void*>(kernel));
  emulator::launch(name, blocks, kThreads, stream, [kernel, arguments...] { kernel(arguments...); });
}

inline void load_kernel(const char* /*name*/, const void* kernel) { emulator::note_loaded(kernel); }

/// As many as a small device could hold.
template <class... Parameters>
std::uint32_t resident_blocks(const char* /*name*/, void (* /*kernel*/)(Parameters...)) {
  return 64;
}

#endif

/// The same for a kernel as it is launched.
template <class... Parameters>
void load_kernel(const char* name, void (*kernel)(Parameters...)) {
  load_kernel(name, reinterpret_cast<const void*>(kernel));
}

GRADWIRE_DEVICE std::uint32_t lane() { return thread() % kLanes; }
GRADWIRE_DEVICE std::uint32_t warp() { return thread() / kLanes; }

template <class T>
GRADWIRE_DEVICE T shuffle_xor(T value, std::uint32_t mask) {
  const T in[1] = {value};
  T out[1];
  shuffle_xor(in, mask, out);
  return out[0];
}

/// The sum over the lanes up to and including this one.
GRADWIRE_DEVICE std::uint32_t sum_to(std::uint32_t value) {
  GRADWIRE_UNROLL
  for (std::uint32_t distance = 1; distance < kLanes; distance *= 2) {
    const std::uint32_t other = shuffle_up(value, distance);
    value += lane() >= distance ? other : 0U;
  }
  return value;
}

}  // namespace gradwire::kernels::simt

#endif  // GRADWIRE_KERNELS_DEVICE_SIMT_HPP
