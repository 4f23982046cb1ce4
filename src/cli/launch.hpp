// Makes a command line that gives every rank, on other hosts too, an environment. mpirun passes none on by itself.
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

/// Index of mpirun, mpiexec or the like in a command; other programs, such as `timeout 60`, may stand before it. It is
/// not searched among the arguments of a script or a job.
[[nodiscard]] std::optional<std::size_t> find_launcher(const std::vector<std::string>& command);

/// Whether the argument is an option of Open MPI's mpirun that sets a parameter: "--mca NAME VALUE".
[[nodiscard]] bool is_mca(std::string_view argument);
/// Whether the argument is its option that sets a variable of ranks: "-x NAME=VALUE", or "-x NAME" for mpirun's own
/// value.
[[nodiscard]] bool is_export(std::string_view argument);

/// Whether the program is an interpreter, such as sh or python3.11, behind which a script and its arguments follow.
[[nodiscard]] bool is_interpreter(const std::string& program);

/// Whether the command contains another `gradwire run`, even behind a launcher.
[[nodiscard]] bool repeats_itself(const std::vector<std::string>& command);

/// The MPI library of a launcher, from its output for --version.
[[nodiscard]] std::optional<Library> identify(std::string_view version);

struct Launch {
  std::vector<std::string> command;
  Environment environment;  // of the command itself
};

/// The command with the variables `ranks` added for every rank. For Open MPI they go into its list mca_base_env_list,
/// which may already be on the command line, in the environment (`inherited_list`) or in a file, or into -x where the
/// command or a file uses that, since Open MPI refuses both. For MPICH they go into -genv. Error(invalid_argument) if
/// the command sets one of them itself.
[[nodiscard]] Launch make_launch(const std::vector<std::string>& command, std::size_t launcher, Library library,
                                 const Environment& ranks, const std::string& inherited_list,
                                 const McaFiles& files = {});

/// Whether the command contains srun, which Slurm's daemons on the hosts act for.
[[nodiscard]] bool starts_by_slurm(const std::vector<std::string>& command);

/// Whether the command hands a job to a queue and returns before it runs.
[[nodiscard]] bool only_submits(const std::vector<std::string>& command);

/// The command with the variables `ranks` in its environment, which a script and its launchers pass on. srun does so,
/// unless --export, or in a batch job SLURM_EXPORT_ENV (`slurm_list`), says otherwise: their lists get the names.
[[nodiscard]] Launch inherit(const std::vector<std::string>& command, const Environment& ranks,
                             const std::string& slurm_list);

/// The job's program among a launcher's arguments, which begin at `begin`. Without knowing all options of the launcher
/// it takes the first argument that is an executable file.
[[nodiscard]] std::optional<std::filesystem::path> find_job(const std::vector<std::string>& command, std::size_t begin);
/// The index of that program.
[[nodiscard]] std::optional<std::size_t> find_job_index(const std::vector<std::string>& command, std::size_t begin);

/// The MPI that the program names as its library; nothing where it names none, or two.
[[nodiscard]] std::optional<Library> linked_with(const std::filesystem::path& program);

}  // namespace gradwire::cli
