// The NCCL library that the job uses, reached through its pncclX names. The drop-in is not linked with libnccl: a
// preload must neither load NCCL into programs without it nor choose another copy than the job's.
#pragma once

#include <nccl.h>
#include <nccl_device.h>

#include <type_traits>

namespace gradwire::nccl_preload {

/// Returns the address of `symbol`. Searches the globally loaded libraries, then the library that holds `caller` and
/// the ones it links, then libnccl.so.2. If none has it, returns null and writes one line to standard error.
[[nodiscard]] void* find_in_nccl(const char* symbol, const void* caller) noexcept;
/// Whether find_in_nccl() would find it; prints nothing.
[[nodiscard]] bool is_in_nccl(const char* symbol, const void* caller) noexcept;

/// Marks the time that a thread spends inside NCCL: public functions that NCCL itself calls then (ncclBcast calls
/// ncclBroadcast) are neither counted nor compressed.
class InsideNccl {
 public:
  InsideNccl() noexcept { ++depth_; }
  ~InsideNccl() { --depth_; }
  InsideNccl(const InsideNccl&) = delete;
  InsideNccl& operator=(const InsideNccl&) = delete;

  [[nodiscard]] static bool active() noexcept { return depth_ > 0; }

 private:
  static constinit thread_local int depth_;
};

/// A function of the real library. Calling one that the library lacks returns an error of the function's type.
template <typename R, typename... Parameters>
class RealFunction {
 public:
  using Pointer = R (*)(Parameters...);

  /// `linked` is the dynamic linker's answer. It is null if NCCL was loaded later, or with RTLD_LOCAL.
  RealFunction(Pointer linked, const char* symbol, const void* caller) noexcept
      : function_(linked != nullptr ? linked : reinterpret_cast<Pointer>(find_in_nccl(symbol, caller))) {}

  R operator()(Parameters... arguments) const {
    if (function_ != nullptr) {
      const InsideNccl inside;
      return function_(arguments...);
    }
    if constexpr (std::is_same_v<R, ncclResult_t>) {
      return ncclSystemError;
    } else if constexpr (std::is_same_v<R, const char*>) {
      return "gradwire: this NCCL library has no such function";
    } else if constexpr (!std::is_void_v<R>) {
      return R{};
    }
  }

 private:
  Pointer function_;
};

}  // namespace gradwire::nccl_preload

/// Declares pncclX as a function that may be missing. The weak reference also makes programs that contain NCCL export
/// it.
#define GRADWIRE_NCCL_DECLARE(result, name, parameters) extern "C" __attribute__((weak)) result p##name parameters;

/// pncclX of the job's NCCL, looked up once. For use in the function that the job calls, whose caller's library helps
/// to find NCCL.
#define GRADWIRE_NCCL_REAL(name)                                                             \
  ([caller = __builtin_return_address(0)]() -> const auto& {                                 \
    static const gradwire::nccl_preload::RealFunction function(&p##name, "p" #name, caller); \
    return function;                                                                         \
  }())

/// Whether the job's NCCL has the function.
#define GRADWIRE_NCCL_HAS(name) \
  (&p##name != nullptr || gradwire::nccl_preload::is_in_nccl("p" #name, __builtin_return_address(0)))

/// Defines gradwire_ncclX, the name that gradwire/replace/nccl.h uses, as an alias of the ncclX defined above it.
#define GRADWIRE_NCCL_REPLACEMENT(name) extern "C" __attribute__((alias(#name))) decltype(name) gradwire_##name;
