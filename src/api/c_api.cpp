// gradwire.h: version, errors, policies, and the numbers of its enumerations.
#include "api/c_api.hpp"

#include <array>
#include <limits>
#include <string_view>

#include "gradwire/version.hpp"

namespace gradwire::api {
namespace {

thread_local std::array<char, 2048> t_last_error{};
constexpr std::uint64_t kMostBytes = std::numeric_limits<std::ptrdiff_t>::max();  // most bytes of an object in memory

gradwire_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument: return GRADWIRE_INVALID_ARGUMENT;
    case ErrorCode::unsupported: return GRADWIRE_UNSUPPORTED;
    case ErrorCode::corrupt: return GRADWIRE_CORRUPT;
    case ErrorCode::mismatch: return GRADWIRE_MISMATCH;
    case ErrorCode::transport: return GRADWIRE_TRANSPORT;
    case ErrorCode::timeout: return GRADWIRE_TIMEOUT;
    case ErrorCode::aborted: return GRADWIRE_ABORTED;
    case ErrorCode::out_of_memory: return GRADWIRE_OUT_OF_MEMORY;
    case ErrorCode::internal: return GRADWIRE_INTERNAL;
    case ErrorCode::expelled: return GRADWIRE_EXPELLED;
    case ErrorCode::too_few: return GRADWIRE_TOO_FEW;
  }
  return GRADWIRE_INTERNAL;
}

}  // namespace

gradwire_status failed(ErrorCode code, const char* message) noexcept {
  const std::string_view text(message);
  const std::size_t bytes = std::min(text.size(), t_last_error.size() - 1);
  std::memcpy(t_last_error.data(), text.data(), bytes);
  t_last_error[bytes] = '\0';
  return status_of(code);
}

void check_data(const void* data, std::uint64_t count, std::uint64_t element, const char* function,
                const char* argument) {
  if (data == nullptr && count > 0) {
    throw Error(ErrorCode::invalid_argument, std::string(function) + ": " + argument + " is NULL with count " +
                                                 std::to_string(count) + "; give its address, or count 0");
  }
  if (count > kMostBytes / std::max<std::uint64_t>(element, 1)) {
    throw Error(ErrorCode::invalid_argument, std::string(function) + ": count " + std::to_string(count) +
                                                 " is more than memory holds; give how many are at " + argument);
  }
}

void write_text(const std::string& text, char* buffer, std::uint64_t size, std::uint64_t* length,
                const char* function) {
  if (length != nullptr) {
    *length = text.size();
  }
  if (buffer == nullptr && size == 0) {
    required(length, function, "length", "where to write it, or a buffer");
    return;
  }
  required(buffer, function, "buffer", "its address, or size 0");
  if (size <= text.size()) {
    if (size > 0) {
      *buffer = '\0';
    }
    throw Error(ErrorCode::invalid_argument, std::string(function) + ": size is " + std::to_string(size) +
                                                 ", the text and its zero take " + std::to_string(text.size() + 1) +
                                                 "; give a buffer of that");
  }
  std::memcpy(buffer, text.c_str(), text.size() + 1);
}

void refuse(const char* function, const char* argument, long long value, const char* instead) {
  throw Error(ErrorCode::invalid_argument,
              std::string(function) + ": " + argument + " is " + std::to_string(value) + "; give " + instead);
}

DType dtype_of(gradwire_dtype dtype, const char* function) {
  switch (dtype) {
    case GRADWIRE_F32: return DType::f32;
    case GRADWIRE_F16: return DType::f16;
    case GRADWIRE_BF16: return DType::bf16;
    case GRADWIRE_F64: return DType::f64;
  }
  refuse(function, "dtype", dtype, "one of gradwire_dtype, such as GRADWIRE_F32");
}

Reduction reduction_of(gradwire_reduction reduction, Reduction otherwise, const char* function) {
  switch (reduction) {
    case GRADWIRE_REDUCTION_DEFAULT: return otherwise;
    case GRADWIRE_SUM: return Reduction::sum;
    case GRADWIRE_MEAN: return Reduction::mean;
  }
  refuse(function, "reduction", reduction, "GRADWIRE_SUM or GRADWIRE_MEAN");
}

std::optional<bool> switch_of(gradwire_switch value, const char* function, const char* argument) {
  switch (value) {
    case GRADWIRE_SWITCH_DEFAULT: return std::nullopt;
    case GRADWIRE_ON: return true;
    case GRADWIRE_OFF: return false;
  }
  refuse(function, argument, value, "GRADWIRE_ON or GRADWIRE_OFF");
}

std::chrono::milliseconds timeout_of(std::int64_t milliseconds, const char* function) {
  if (milliseconds < 0) {
    refuse(function, "timeout_ms", milliseconds, "a positive number, or 0 for five minutes");
  }
  return milliseconds == 0 ? CommunicatorOptions{}.timeout : std::chrono::milliseconds(milliseconds);
}

gradwire_statistics statistics_of(const Statistics& statistics) noexcept {
  return {.struct_size = sizeof(gradwire_statistics),
          .calls = statistics.calls,
          .bytes_in = statistics.bytes_in,
          .bytes_sent = statistics.bytes_sent,
          .bytes_uncompressed = statistics.bytes_uncompressed,
          .seconds = statistics.total_seconds,
          .bytes_inter = statistics.bytes_inter};
}

}  // namespace gradwire::api

using gradwire::Policy;
using gradwire::api::guard;
using gradwire::api::required;

extern "C" {

const char* gradwire_version() { return gradwire::kVersion.data(); }

const char* gradwire_status_text(gradwire_status status) {
  if (status == GRADWIRE_OK) {
    return "ok";
  }
  // Codes have the numbers of statuses, from 1 on; their names are literals.
  for (int code = 0; code <= static_cast<int>(gradwire::kLastErrorCode); ++code) {
    const auto error = static_cast<gradwire::ErrorCode>(code);
    if (gradwire::api::status_of(error) == status) {
      return gradwire::to_string(error).data();
    }
  }
  return "unknown";
}

const char* gradwire_last_error() { return gradwire::api::t_last_error.data(); }

gradwire_status gradwire_policy_load(const char* file, gradwire_policy** policy) {
  const char* function = __func__;
  return guard([&] {
    gradwire_policy*& result = required(policy, function, "policy");
    result = nullptr;
    result = new gradwire_policy{Policy::load(&required(file, function, "file"))};
  });
}

gradwire_status gradwire_policy_parse(const char* text, const char* source, gradwire_policy** policy) {
  const char* function = __func__;
  return guard([&] {
    gradwire_policy*& result = required(policy, function, "policy");
    result = nullptr;
    result =
        new gradwire_policy{Policy::parse(&required(text, function, "text"), source == nullptr ? "policy" : source)};
  });
}

void gradwire_policy_destroy(gradwire_policy* policy) { delete policy; }

}  // extern "C"
