// Shared code of the functions of gradwire.h: the boundary that no exception crosses, checks of arguments, structs that
// may be of another version, and the content of handles.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/current_error.hpp"
#include "gradwire/communicator.hpp"
#include "gradwire/error.hpp"
#include "gradwire/gradwire.h"
#include "gradwire/policy.hpp"
#include "gradwire/session.hpp"
#include "gradwire/table.hpp"
#include "gradwire/tables.h"

struct gradwire_policy {
  gradwire::Policy policy;
};
struct gradwire_session {
  gradwire::Session session;
  std::vector<int> nonfinite_ranks = {};         // those of the step that ended last
  std::vector<std::uint32_t> table_widths = {};  // by number of the table
};
struct gradwire_communicator {
  gradwire::Communicator communicator;
};
struct gradwire_feedback {
  gradwire::FeedbackBuffer buffer;
};
struct gradwire_table {
  gradwire::Table table;
};
struct gradwire_table_snapshot {
  gradwire::TableSnapshot snapshot;
  std::uint32_t width;
};

namespace gradwire::api {

/// Keeps the text for gradwire_last_error(); allocates nothing.
gradwire_status failed(ErrorCode code, const char* message) noexcept;

/// Runs the body of a function of the C API, and turns any exception into a status and a text.
template <typename Body>
gradwire_status guard(Body&& body) noexcept {
  try {
    try {
      std::forward<Body>(body)();
      return GRADWIRE_OK;
    } catch (...) {
      const Error error = current_error();
      return failed(error.code(), error.what());
    }
  } catch (...) {  // there is no memory even for the message
    return failed(ErrorCode::out_of_memory, "out of memory");
  }
}

/// Returns *pointer; throws Error(invalid_argument), which names the argument and says what to give, where it is NULL.
template <typename T>
T& required(T* pointer, const char* function, const char* argument, const char* instead = "the address of one") {
  if (pointer == nullptr) {
    throw Error(ErrorCode::invalid_argument, std::string(function) + ": " + argument + " is NULL; give " + instead);
  }
  return *pointer;
}

/// The content of a handle, with the handle's constness.
template <typename Handle>
auto& session_of(Handle* handle, const char* function) {
  return required(handle, function, "session", "one that gradwire_session_create_mpi() made").session;
}
template <typename Handle>
auto& communicator_of(Handle* handle, const char* function) {
  return required(handle, function, "communicator", "one that gradwire_communicator_create_mpi() made").communicator;
}
template <typename Handle>
auto& table_of(Handle* handle, const char* function) {
  return required(handle, function, "table", "one that gradwire_table_create_mpi() made").table;
}

/// Throws Error(invalid_argument) for NULL with elements, and for more elements of `element` bytes than memory can
/// hold.
void check_data(const void* data, std::uint64_t count, std::uint64_t element, const char* function,
                const char* argument);

/// Writes a text in the way that gradwire.h describes; Error(invalid_argument) where it does not fit.
void write_text(const std::string& text, char* buffer, std::uint64_t size, std::uint64_t* length, const char* function);

/// Throws Error(invalid_argument) for a struct without its size. NULL is allowed.
template <typename T>
void check_struct_size(const T* given, const char* type) {
  if (given != nullptr && given->struct_size < sizeof(std::size_t)) {
    throw Error(ErrorCode::invalid_argument, std::string(type) + ": struct_size is " +
                                                 std::to_string(given->struct_size) + "; set it to sizeof(" + type +
                                                 ")");
  }
}

/// The caller's struct in this version's layout: fields that an older struct lacks are 0, the default.
/// Error(unsupported) where a newer struct sets a field that this version does not know.
template <typename T>
T read_struct(const T* given, const char* type) {
  T known{};
  if (given == nullptr) {
    return known;
  }
  check_struct_size(given, type);
  const std::size_t bytes = given->struct_size;
  std::memcpy(&known, given, std::min(bytes, sizeof known));
  const auto* raw = reinterpret_cast<const unsigned char*>(given);
  if (bytes > sizeof known &&
      std::any_of(raw + sizeof known, raw + bytes, [](unsigned char byte) { return byte != 0; })) {
    throw Error(ErrorCode::unsupported, std::string(type) +
                                            " sets a field that this libgradwire_c does not know; use that of " +
                                            "the version whose header you compile with");
  }
  return known;
}

/// Writes the fields for which the caller's struct, whose size was checked, has room; its further fields stay. NULL:
/// does nothing.
template <typename T>
void write_struct(const T& values, T* target) {
  if (target == nullptr) {
    return;
  }
  const std::size_t bytes = std::min(target->struct_size, sizeof values);
  constexpr std::size_t kHead = sizeof target->struct_size;
  std::memcpy(reinterpret_cast<unsigned char*>(target) + kHead, reinterpret_cast<const unsigned char*>(&values) + kHead,
              bytes - kHead);
}

/// Throws Error(invalid_argument) for a number that `argument` of `function` must not be.
[[noreturn]] void refuse(const char* function, const char* argument, long long value, const char* instead);
/// The C++ value; throws an Error for a number that is none of the enumerators.
[[nodiscard]] DType dtype_of(gradwire_dtype dtype, const char* function);
[[nodiscard]] Reduction reduction_of(gradwire_reduction reduction, Reduction otherwise, const char* function);
[[nodiscard]] std::optional<bool> switch_of(gradwire_switch value, const char* function, const char* argument);
/// The timeout; 0 stands for five minutes.
[[nodiscard]] std::chrono::milliseconds timeout_of(std::int64_t milliseconds, const char* function);
/// C++ options for options of C; NULL stands for a struct of zeros.
[[nodiscard]] CallOptions call_options_of(const gradwire_call_options* given, const char* function);
[[nodiscard]] CommunicatorOptions communicator_options_of(const gradwire_communicator_options* given,
                                                          const char* function);
[[nodiscard]] SessionOptions session_options_of(const gradwire_session_options* given, const char* function);
/// `policy` may be null.
[[nodiscard]] TableOptions table_options_of(const gradwire_table_options* given, const gradwire_policy* policy,
                                            const char* function);
/// Spans over ids, and over rows of `width` floats for each of `count` ids. Errors are those of check_data().
[[nodiscard]] std::span<const std::uint64_t> ids_of(const std::uint64_t* ids, std::uint64_t count,
                                                    const char* function);
template <typename Float>
std::span<Float> rows_of(Float* rows, std::uint64_t count, std::uint64_t width, const char* function,
                         const char* argument) {
  check_data(rows, count, width * sizeof *rows, function, argument);
  return {rows, static_cast<std::size_t>(count * width)};
}
[[nodiscard]] gradwire_row_statistics row_statistics_of(const TableStatistics& found) noexcept;
[[nodiscard]] gradwire_statistics statistics_of(const Statistics& statistics) noexcept;

}  // namespace gradwire::api
