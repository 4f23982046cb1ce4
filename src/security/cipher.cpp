#include "security/cipher.hpp"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace gradwire::security {

bool has_aes() noexcept {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
#elif defined(__aarch64__)
  constexpr unsigned long kAes = 1UL << 3U;    // HWCAP_AES
  constexpr unsigned long kPmull = 1UL << 4U;  // HWCAP_PMULL
  return (::getauxval(AT_HWCAP) & (kAes | kPmull)) == (kAes | kPmull);
#else
  return false;
#endif
}

}  // namespace gradwire::security
