// The options of `gradwire run`, and what of the environment stands for them, checked before anything starts.
#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "cli/commands.hpp"

namespace gradwire::cli {

/// The policy that the job will use, as an absolute path; its notes go to `out`. Error as Policy::load.
[[nodiscard]] std::optional<std::string> checked_policy(const RunOptions& options, std::ostream& out);
/// The codec that the job will use for all its calls. Errors (invalid_argument): it is none, or stands beside a policy.
[[nodiscard]] std::optional<std::string> checked_codec(const RunOptions& options, std::ostream& out);

/// What stands beside a codec. A policy says it itself.
struct CodecOptions {
  std::optional<std::string> feedback;
  std::optional<std::string> f64;
  std::optional<std::string> max_error;
};
/// Error(invalid_argument) beside a policy: it names the key to write there.
[[nodiscard]] CodecOptions checked_codec_options(const RunOptions& options);

/// With --let-join and --join as ranks see them, whatever folder they run in.
[[nodiscard]] RunOptions with_join_files(RunOptions options);

}  // namespace gradwire::cli
