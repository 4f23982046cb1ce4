// The command line that gives every rank, on other hosts too, an environment. mpirun hands none on by itself.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/mca_files.hpp"
#include "cli/preload.hpp"
#include "cli/process.hpp"

namespace gradwire::cli {

/// Index of mpirun, mpiexec or the like in a command; others, such as `timeout 60`, may stand before it. Not among the
/// arguments of a script or a job.
[[nodiscard]] std::optional<std::size_t> find_launcher(const std::vector<std::string>& command);

/// sh, python3.11: what follows is a script and its arguments.
[[nodiscard]] bool is_interpreter(const std::string& program);

/// Whether another `gradwire run` stands in it, even behind a launcher.
[[nodiscard]] bool repeats_itself(const std::vector<std::string>& command);

/// Whose launcher it is, from what it prints for --version.
[[nodiscard]] std::optional<Library> identify(std::string_view version);

struct Launch {
  std::vector<std::string> command;
  Environment environment;  // of the command itself
};

/// The command with `ranks` added for every rank. Open MPI: by its list mca_base_env_list, which may be on the command
/// line, in the environment (`inherited_list`) or in a file already, or by -x where the command or a file uses that,
/// since Open MPI refuses both. MPICH: by -genv. Error(invalid_argument) if the command sets one of them itself.
[[nodiscard]] Launch make_launch(const std::vector<std::string>& command, std::size_t launcher, Library library,
                                 const Environment& ranks, const std::string& inherited_list,
                                 const McaFiles& files = {});

/// Whether the command hands a job to a queue and returns before it runs.
[[nodiscard]] bool only_submits(const std::vector<std::string>& command);

/// The command with `ranks` in its environment, which a script and its launchers hand on. srun does so unless it is
/// told otherwise by --export, or in a batch job by SLURM_EXPORT_ENV (`slurm_list`): their lists get the names.
[[nodiscard]] Launch inherit(const std::vector<std::string>& command, const Environment& ranks,
                             const std::string& slurm_list);

/// The job's program among a launcher's arguments, which begin at `begin`, as far as one can tell without knowing all
/// of its options: the first argument that is an executable file.
[[nodiscard]] std::optional<std::filesystem::path> find_job(const std::vector<std::string>& command, std::size_t begin);
/// Its index.
[[nodiscard]] std::optional<std::size_t> find_job_index(const std::vector<std::string>& command, std::size_t begin);

/// The MPI that the program names as its library; nothing where it names none, or both.
[[nodiscard]] std::optional<Library> linked_with(const std::filesystem::path& program);

}  // namespace gradwire::cli
