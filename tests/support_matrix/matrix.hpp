// The support matrix as data: features by place, and the errors that public comments promise. Each row has a function
// that makes its call, so that a test can run it; docs/reference/support.md is written from the same rows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gradwire/error.hpp"

namespace gradwire::support {

inline constexpr ErrorCode kUnsupported = ErrorCode::unsupported;
inline constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;

/// The ways in which a program makes its session or communicator.
enum class Place : std::uint8_t {
  host,            // host memory over a Transport
  processes,       // host memory over Processes
  cuda,            // device memory over a Transport: gradwire/cuda.hpp
  cuda_processes,  // device memory over Processes: gradwire/cuda.hpp
  nccl,            // device memory over NCCL: gradwire/nccl.hpp
  c,               // host memory over MPI through the C API
};
inline constexpr std::size_t kPlaces = 6;

/// The state of a feature at one place.
struct Cell {
  enum class Kind : std::uint8_t {
    works,
    differs,  // it works, but differently from elsewhere: `text` says how
    refused,  // the call throws an Error with `code` that contains `text`
    absent,   // there is no such call: no header of the place has the word `text`
    none,     // the feature has no meaning there: `text` says why, and nothing is played
  };
  Kind kind = Kind::works;
  ErrorCode code = ErrorCode::internal;
  std::string_view text = {};
  /// Says why no test can play it here; if empty, it is played.
  std::string_view not_played = {};
};

/// Plays a feature at one place of C++, on two ranks that are threads. It passes on exceptions of the call.
using Play = void (*)(Place);
/// Plays it through the C API, in a world of this process alone; throws an Error for a status that is not GRADWIRE_OK.
using PlayInC = void (*)();

struct Feature {
  std::string_view group;
  std::string_view name;
  std::array<Cell, kPlaces> cells;
  Play play = nullptr;
  PlayInC play_in_c = nullptr;  // also null if this build has no C API
};

/// An error that a comment of a public header promises.
struct Promise {
  std::string_view header;  // its name below include/gradwire
  std::string_view of;      // the function or type that the comment describes
  std::string_view quote;   // the text of the comment, on one line
  ErrorCode code;
  std::string_view text;  // a part of the error's text
  /// Makes the call, which throws the Error. Null if `elsewhere` plays it, if nothing does, and for MPI and C in a
  /// build without them.
  void (*call)() = nullptr;
  std::string_view elsewhere = {};   // a test that needs a GPU or LibTorch, and names `text`
  std::string_view not_played = {};  // why no test plays it
};

/// Thrown by a call that cannot be made now, with the reason.
struct NotNow {
  std::string why;
};

[[nodiscard]] std::span<const Feature> features();
/// Return the promises of the header of sessions, of the other headers without a dependency, and of those for CUDA,
/// NCCL, LibTorch, MPI and C.
[[nodiscard]] std::span<const Promise> promises_of_sessions();
[[nodiscard]] std::span<const Promise> promises_of_cpp();
[[nodiscard]] std::span<const Promise> promises_of_libraries();

[[nodiscard]] std::string_view to_string(Place place) noexcept;
/// Returns the whole text of docs/reference/support.md, and that of docs/reference/support-errors.md.
[[nodiscard]] std::string document_of_features();
[[nodiscard]] std::string document_of_errors();

}  // namespace gradwire::support
