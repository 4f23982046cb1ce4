// What a policy may ask of batches and buckets, and what to say where it asks for something else.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "gradwire/policy.hpp"

namespace gradwire::policy {

inline constexpr std::uint32_t kMaxAccumulation = 4096;

/// Of [elastic]: a rank gives a sign of life ten times in the shortest.
inline constexpr std::chrono::milliseconds kLeastSuspect{1000};
inline constexpr std::chrono::milliseconds kMostSuspect{600'000};
inline constexpr double kLeastSlower = 1.5;
inline constexpr double kMostSlower = 1000;
inline constexpr std::uint32_t kMostRanks = 1'000'000;

/// What to say of [batch] bounds that leave no accumulation.
[[nodiscard]] std::string contradiction(const Policy::Batch& batch);

/// What is wrong with TensorPolicy::decay; empty where nothing is.
[[nodiscard]] std::string decay_problem(double decay);

/// What is wrong with TensorPolicy::max_error; empty where nothing is.
[[nodiscard]] std::string max_error_problem(double bound);
/// Why a session refuses one.
inline constexpr std::string_view kErrorOfCalls =
    "max_error is for jobs without a session, whose calls can be made by the library as well; remove it (a session's "
    "statistics say its errors: SessionOptions::measure_error)";

/// What to say of [bucket] bytes = "auto" alone.
inline constexpr std::string_view kBucketsNeedALink =
    "[bucket] bytes = \"auto\" needs [link]; write its bandwidth and latency as `gradwire info --link` prints them, or "
    "write a size";

}  // namespace gradwire::policy
