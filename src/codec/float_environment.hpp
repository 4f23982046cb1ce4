// While a FloatEnvironment lives, the thread rounds to nearest, keeps denormals and traps nothing. Callers built with
// -ffast-math flush denormals, which would change codec bytes.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace gradwire::codec {

class FloatEnvironment {
 public:
  FloatEnvironment() noexcept : saved_(get()) {
    if (needs_change(saved_)) {
      set(kDefault);
    }
    barrier();
  }
  ~FloatEnvironment() {
    barrier();
    if (get() != saved_) {
      set(saved_);
    }
  }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  // Keeps the compiler from moving loads and stores, and with them the arithmetic in between, across the change.
  static void barrier() noexcept { asm volatile("" ::: "memory"); }

#if defined(__x86_64__)
  using Register = std::uint32_t;
  static constexpr Register kDefault = 0x1F80;  // all exceptions masked
  static constexpr Register kSticky = 0x3F;     // records what happened, controls nothing
  static bool needs_change(Register value) noexcept { return (value & ~kSticky) != kDefault; }
  static Register get() noexcept { return _mm_getcsr(); }
  static void set(Register value) noexcept { _mm_setcsr(value); }
#elif defined(__aarch64__)
  using Register = std::uint64_t;
  static constexpr Register kDefault = 0;
  static bool needs_change(Register value) noexcept { return value != kDefault; }
  static Register get() noexcept {
    Register value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set(Register value) noexcept { asm volatile("msr fpcr, %0" ::"r"(value)); }
#else
  using Register = int;
  static constexpr Register kDefault = 0;
  static bool needs_change(Register) noexcept { return false; }
  static Register get() noexcept { return 0; }
  static void set(Register) noexcept {}
#endif

  Register saved_;
};

}  // namespace gradwire::codec
