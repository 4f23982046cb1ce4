// Settings in files of Open MPI (mca-params.conf, --tune) for the environment of ranks, which `gradwire run` must keep.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradwire::cli {

/// Names without a value get the value in mpirun's own environment.
struct McaFiles {
  std::optional<std::string> list = std::nullopt;  // mca_base_env_list
  char delimiter = ';';                   // mca_base_env_list_delimiter, also from the command and the environment
  std::vector<std::string> exports = {};  // values of -x: "NAME" or "NAME=VALUE"
};

/// Reads the files that mpirun would read, in its order: those of --tune, those of mca_base_param_files, the user's
/// mca-params.conf, the system's. `launcher` is mpirun's index in the command. `variable` returns a variable of the
/// environment, empty where it is not set. Missing files are skipped.
[[nodiscard]] McaFiles read_mca_files(const std::vector<std::string>& command, std::size_t launcher,
                                      const std::function<std::string(const char*)>& variable);

}  // namespace gradwire::cli
