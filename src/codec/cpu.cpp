#include "codec/cpu.hpp"

#if defined(GRADWIRE_HIGHWAY)
#include "hwy/detect_targets.h"

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace gradwire::codec {
namespace {

#if HWY_ARCH_X86
// __builtin_cpu_supports takes into account which registers the operating system saves.
bool has_sse4() {
  return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("aes") &&
         __builtin_cpu_supports("pclmul");
}

bool has_avx2() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  const bool f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  const bool lzcnt = __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && (c & bit_LZCNT) != 0;
  return has_sse4() && f16c && lzcnt && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool has_avx3() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd");
}
#endif

}  // namespace

bool cpu_runs(std::int64_t target) noexcept {
#if HWY_ARCH_X86
  switch (target) {
    case HWY_SSSE3: return __builtin_cpu_supports("ssse3");
    case HWY_SSE4: return has_sse4();
    case HWY_AVX2: return has_avx2();
    case HWY_AVX3: return has_avx3();
    default: break;
  }
#endif
  return (target & HWY_BASELINE_TARGETS) != 0;  // the compiler takes these for granted
}

}  // namespace gradwire::codec
#endif
