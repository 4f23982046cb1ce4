// The NCCL library that the job uses, reached through its pncclX names. The drop-in is not linked with libnccl: a
// preload must neither load NCCL into programs without it nor choose another copy than the job's.
#pragma once

#include <nccl.h>
#include <nccl_device.h>

#include <type_traits>

namespace gradwire::nccl_preload {

/// The address of `symbol` in the first of: what is loaded for all, the library that holds `caller` and what it links,
/// libnccl.so.2. Null, and one line on standard error, where none has it.
[[nodiscard]] void* find_in_nccl(const char* symbol, const void* caller) noexcept;

/// Marks the time that a thread spends inside NCCL: public functions that NCCL itself calls then (ncclBcast calls
/// ncclBroadcast) are its own affair.
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

/// A function of the real library. One that it lacks gives an error of the function's type.
template <typename R, typename... Parameters>
class RealFunction {
 public:
  using Pointer = R (*)(Parameters...);

  /// `linked` is the dynamic linker's answer: null where NCCL came later, or for a part of the process only.
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

/// Declares pncclX as one that may be missing. The weak reference also exports it from programs that hold NCCL
/// themselves.
#define GRADWIRE_NCCL_DECLARE(result, name, parameters) extern "C" __attribute__((weak)) result p##name parameters;

/// pncclX of the job's NCCL, looked up once. For use in the function that the job calls: its caller leads to NCCL.
#define GRADWIRE_NCCL_REAL(name)                                                             \
  ([caller = __builtin_return_address(0)]() -> const auto& {                                 \
    static const gradwire::nccl_preload::RealFunction function(&p##name, "p" #name, caller); \
    return function;                                                                         \
  }())

/// gradwire_ncclX, the name that gradwire/replace/nccl.h uses, for an ncclX that is defined above it.
#define GRADWIRE_NCCL_REPLACEMENT(name) extern "C" __attribute__((alias(#name))) decltype(name) gradwire_##name;
