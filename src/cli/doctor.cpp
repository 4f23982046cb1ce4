// gradwire doctor: as a rank of a job it becomes the program that looks; before a launcher it starts that job.
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "cli/build_info.hpp"
#include "cli/commands.hpp"
#include "cli/launch.hpp"
#include "cli/preload.hpp"
#include "cli/process.hpp"
#include "gradwire/error.hpp"

namespace gradwire::cli {
namespace {

namespace fs = std::filesystem;

// What the program cannot know: how this tool was built, and where it finds libraries to preload.
std::vector<std::string> arguments_for(const fs::path& program, const DoctorOptions& options) {
  std::vector<std::string> arguments{program.string(), "--build", kBuild};
  const auto add = [&](const std::string& library, const std::string& name) {
    arguments.insert(arguments.end(),
                     {"--preload", library + "=" + find_preload(this_program(), name).value_or("").string()});
  };
  for (const Library library : {Library::open_mpi, Library::mpich, Library::nccl}) {
    add(std::string(to_string(library)), preload_name(library));
  }
  add("any MPI", kAnyPreload);
  if (options.json) {
    arguments.insert(arguments.end(), {"--json", *options.json});
  }
  return arguments;
}

// Its mpirun says in six lines that a rank ended with 1, which is the status that a problem has.
bool is_open_mpi(const std::string& launcher) {
  return identify(output_of({launcher, "--version"})) == Library::open_mpi;
}

[[noreturn]] void become(const DoctorOptions& options) {
  const fs::path program = this_program().parent_path() / "gradwire-doctor";
  std::vector<std::string> arguments = arguments_for(program, options);
  std::vector<char*> pointers;
  pointers.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) {
    pointers.push_back(argument.data());
  }
  pointers.push_back(nullptr);
  execv(program.c_str(), pointers.data());
  throw Error(ErrorCode::unsupported, "doctor: " + program.string() + " cannot be started (" +
                                          std::system_category().message(errno) +
                                          "); it comes with builds that found MPI, in the folder of this tool");
}

}  // namespace

int doctor(const DoctorOptions& options, std::ostream& out) {
  if (options.json && options.json->empty()) {
    throw Error(ErrorCode::invalid_argument, "--json has an empty name; name a file");
  }
  if (options.command.empty()) {
    become(options);
  }
  if (only_submits(options.command)) {
    throw Error(ErrorCode::invalid_argument, options.command.front() +
                                                 " returns before the job runs; put gradwire doctor inside: in the "
                                                 "script, gradwire doctor -- srun or gradwire doctor -- mpirun");
  }
  if (!find_program(options.command.front())) {
    out << "gradwire: " << options.command.front()
        << " was not found; install an MPI or write the path of its mpirun\n";
    return kCannotRunStatus;
  }
  std::vector<std::string> command = options.command;
  if (const auto launcher = find_launcher(command); launcher && is_open_mpi(command[*launcher])) {
    command.insert(command.begin() + static_cast<std::ptrdiff_t>(*launcher) + 1, "--quiet");
  }
  command.insert(command.end(), {this_program().string(), "doctor"});
  if (options.json) {
    command.insert(command.end(), {"--json", fs::absolute(*options.json).string()});
  }
  return run_and_wait(command, {});
}

}  // namespace gradwire::cli
