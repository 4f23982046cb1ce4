// A model for `gradwire plan` from what a job left: recorded gradients, or a report of replaced calls.
#pragma once

#include <optional>
#include <string>

#include "cli/model_file.hpp"

namespace gradwire::cli {

struct RecordedModel {
  ModelFile model;
  std::string source;     // the file or folder, and what was taken from it, for people
  std::string note = {};  // how the time of the computation was found; empty: it was given
};

/// Reads a folder or a file of gradients, or a report of gradwire run (.json, or the directory of --report). `compute`
/// is how long a step computes; without it the rest of the time of an observed job counts, by its report. Errors are
/// Error(invalid_argument), also where that is not known.
[[nodiscard]] RecordedModel read_recorded_model(const std::string& from, const std::optional<std::string>& compute);

}  // namespace gradwire::cli
