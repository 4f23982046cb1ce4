// Checks the options of `gradwire run`, and the variables that replace them, before anything starts.
#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "cli/commands.hpp"

namespace gradwire::cli {

/// The policy that the job will use, as an absolute path; its notes go to `out`. Errors are those of Policy::load.
[[nodiscard]] std::optional<std::string> checked_policy(const RunOptions& options, std::ostream& out);
/// The codec that the job will use for all its calls. Error(invalid_argument) where it is no codec, or stands beside a
/// policy.
[[nodiscard]] std::optional<std::string> checked_codec(const RunOptions& options, std::ostream& out);

/// Options that may stand beside a codec. A policy has keys for them.
struct CodecOptions {
  std::optional<std::string> feedback;
  std::optional<std::string> f64;
  std::optional<std::string> max_error;
};
/// Checks these options; beside a policy Error(invalid_argument) names the key to write there.
[[nodiscard]] CodecOptions checked_codec_options(const RunOptions& options);

/// The options with absolute paths for --let-join and --join, so that ranks may run in any folder.
[[nodiscard]] RunOptions with_join_files(RunOptions options);

}  // namespace gradwire::cli
