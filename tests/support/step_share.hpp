// The share of long tests that a build runs.
#pragma once

namespace gradwire::test {

/// Long tests do this part of their steps: sanitizers are up to 15 times slower, and find their errors in few steps.
#ifdef __SANITIZE_THREAD__
inline constexpr int kStepShare = 15;
#elif defined(GRADWIRE_SANITIZED)
inline constexpr int kStepShare = 10;
#else
inline constexpr int kStepShare = 1;
#endif

}  // namespace gradwire::test
