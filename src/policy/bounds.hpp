// The limits of a policy's settings for batches and buckets, and the messages where they are exceeded.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/policy.hpp"

namespace gradwire::policy {

inline constexpr std::uint32_t kMaxAccumulation = 4096;

/// Least `suspect` of [elastic]: a rank gives ten signs of life in that time.
inline constexpr std::chrono::milliseconds kLeastSuspect{1000};
inline constexpr std::chrono::milliseconds kMostSuspect{600'000};
inline constexpr double kLeastSlower = 1.5;
inline constexpr double kMostSlower = 1000;
inline constexpr std::uint32_t kMostRanks = 1'000'000;
inline constexpr std::uint32_t kMostBlocks = 1U << 16;         // of a kernel, which has no more in any case
inline constexpr std::uint64_t kMostJoinBytes = 256ULL << 20;  // frames of joined buckets lie in one piece of memory
inline constexpr std::uint64_t kMostMemory = 1ULL << 50;
inline constexpr std::uint64_t kLeastLimit = 2ULL << 20;  // a region of the page pool
inline constexpr std::chrono::milliseconds kLeastMemoryTime{1};
inline constexpr std::chrono::milliseconds kMostMemoryTime{3600000};

/// The message for bounds of [batch] that leave no accumulation.
[[nodiscard]] std::string contradiction(const Policy::Batch& batch);

/// The error in TensorPolicy::decay; empty if there is none.
[[nodiscard]] std::string decay_problem(double decay);

/// The error in TensorPolicy::max_error; empty if there is none.
[[nodiscard]] std::string max_error_problem(double bound);
/// Why a session refuses max_error.
inline constexpr std::string_view kErrorOfCalls =
    "max_error is for jobs without a session, whose calls can be made by the library as well; remove it (a session's "
    "statistics say its errors: SessionOptions::measure_error)";

/// The message for [bucket] bytes = "auto" without a link.
inline constexpr std::string_view kBucketsNeedALink =
    "[bucket] bytes = \"auto\" needs [link]; write its bandwidth and latency as `gradwire info --link` prints them, or "
    "write a size";

/// The least memory of residuals beside a file.
inline constexpr std::uint64_t kLeastStoreMemory = std::uint64_t{64} << 10;  // bytes

}  // namespace gradwire::policy
