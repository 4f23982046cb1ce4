// gradwire run: refuses what cannot work before it starts anything, starts the job, again where it failed and
// that was asked for, tells what became of its calls.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/environment.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/elf.hpp"
#include "cli/launch.hpp"
#include "cli/page/histories.hpp"
#include "cli/page/page.hpp"
#include "cli/preload.hpp"
#include "cli/process.hpp"
#include "cli/report.hpp"
#include "cli/report_file.hpp"
#include "cli/restarts.hpp"
#include "gradwire/error.hpp"
#include "gradwire/policy.hpp"
#include "plan/call_plan.hpp"
#include "policy/stage.hpp"
#include "transport/tcp/tcp_join_file.hpp"

namespace gradwire::cli {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::invalid_argument, what); }

// The library of the MPI that the launcher belongs to.
Library library_of(const std::string& launcher) {
  const std::string said = output_of({launcher, "--version"});
  if (const auto library = identify(said)) {
    return *library;
  }
  const std::string line = said.substr(0, said.find('\n')).substr(0, 100);
  refuse(
      find_program(launcher).value_or(launcher).string() + " is of neither Open MPI nor MPICH: --version says " +
      (line.empty() ? "nothing" : "\"" + line + "\"") +
      "; write the path of the mpirun of one of them, or, where this launcher hands the environment on to its ranks, "
      "gradwire run -- sh -c '" +
      launcher + " ...'");
}

// The file of this name beside this program; `jobs` says whose it is.
fs::path preload_of(const std::string& name, const std::string& jobs) {
  const fs::path program = this_program();
  if (const auto file = find_preload(program, name)) {
    if (file->string().find_first_of(": ") != std::string::npos) {
      refuse(file->string() + " cannot be preloaded, since LD_PRELOAD ends a name at a space or a colon; install " +
             "gradwire in a folder whose path has neither");
    }
    return *file;
  }
  std::string folders;
  for (const fs::path& folder : preload_folders(program)) {
    folders += (folders.empty() ? "" : " and ") + folder.string();
  }
  refuse(name + " (for jobs of " + jobs + ") is not in " + folders + "; build or install it there");
}

fs::path preload_of(Library library) { return preload_of(preload_name(library), std::string(to_string(library))); }

// The policy that the job will use, read once here so that its mistakes are told before anything starts.
std::optional<std::string> checked_policy(const RunOptions& options, std::ostream& out) {
  const std::optional<std::string> file = options.policy ? options.policy : environment("GRADWIRE_POLICY");
  if (!file) {
    return std::nullopt;
  }
  const plan::CallPlanner calls(Policy::load(*file));
  for (const std::string& note : calls.notes()) {
    out << "gradwire: note: " << text::printable(note) << '\n';
  }
  return fs::absolute(*file).string();
}

// Who reads our output may stop, as `head` does: then there is still something to clear away.
class IgnoredBrokenPipes {
 public:
  IgnoredBrokenPipes() : before_(std::signal(SIGPIPE, SIG_IGN)) {}
  ~IgnoredBrokenPipes() { std::signal(SIGPIPE, before_); }
  IgnoredBrokenPipes(const IgnoredBrokenPipes&) = delete;
  IgnoredBrokenPipes& operator=(const IgnoredBrokenPipes&) = delete;

 private:
  void (*before_)(int);
};

// The codec that the job will use for all its calls.
std::optional<std::string> checked_codec(const RunOptions& options, std::ostream& out) {
  std::optional<std::string> codec = options.codec ? options.codec : environment("GRADWIRE_CODEC");
  if (!codec) {
    return std::nullopt;
  }
  const char* policy = options.policy ? "--policy" : environment("GRADWIRE_POLICY") ? "GRADWIRE_POLICY" : nullptr;
  if (policy != nullptr) {
    refuse(std::string(options.codec ? "--codec" : "GRADWIRE_CODEC") + " and " + policy +
           " are both given; a policy names its codecs itself, so drop one of the two");
  }
  if (*codec != "auto") {
    try {
      const CodecSpec spec = CodecSpec::parse(*codec);
      if (const std::string note = policy::selection_note(spec); !note.empty()) {
        out << "gradwire: note: " << note << '\n';
      }
    } catch (const Error& error) {
      refuse(std::string(options.codec ? "--codec: " : "GRADWIRE_CODEC: ") + error.what() + ", or auto");
    }
  }
  return codec;
}

// With --let-join and --join as ranks see them, whatever folder they run in.
RunOptions with_join_files(RunOptions options) {
  const char* let_join = options.let_join ? "--let-join" : "GRADWIRE_LET_JOIN";
  const char* join = options.join ? "--join" : "GRADWIRE_JOIN";
  options.let_join = options.let_join ? options.let_join : environment("GRADWIRE_LET_JOIN");
  options.join = options.join ? options.join : environment("GRADWIRE_JOIN");
  if (options.let_join && options.join) {
    refuse(std::string(let_join) + " and " + join +
           " are both given; others can join by whoever joins, too, so write --join alone");
  }
  for (std::optional<std::string>* file : {&options.let_join, &options.join}) {
    if (*file) {
      *file = fs::absolute(**file).lexically_normal().string();
    }
  }
  if (options.let_join) {
    const fs::path folder = fs::path(*options.let_join).parent_path();
    if (!fs::is_directory(folder) || fs::is_directory(*options.let_join)) {
      refuse(std::string(let_join) + ": " + *options.let_join + " cannot be written, since " +
             (fs::is_directory(folder) ? "it is a folder; write the name of a file in it"
                                       : folder.string() + " is no folder; make it, or name another file"));
    }
    if (options.restarts > 0) {
      refuse(std::string("--restarts and ") + let_join +
             " are both given: processes that joined go on when the launcher ends, so that the job that starts again "
             "would be a second one; drop one of the two");
    }
    try {
      transport::tcp::check_join_file_is_free(*options.let_join);  // a launcher may hide that its ranks failed
    } catch (const Error& error) {
      refuse(std::string(let_join) + ": " + error.what());
    }
  }
  if (options.join && !fs::is_regular_file(*options.join)) {
    refuse(std::string(join) + ": " + *options.join +
           " is not there; a job writes it that was started with gradwire run --let-join " + *options.join);
  }
  return options;
}

// What every rank gets: each of our variables that is set, and the preload before those of the user.
Environment rank_environment(const RunOptions& options, const std::optional<std::string>& policy,
                             const std::optional<std::string>& codec, const std::string& report,
                             const fs::path& preload, int restart) {
  Environment ranks;
  for (const EnvironmentVariable& known : environment_variables()) {
    std::optional<std::string> value = environment(known.name);
    if (known.name == "GRADWIRE_POLICY") {
      value = policy;
    } else if (known.name == "GRADWIRE_CODEC") {
      value = codec;
    } else if (known.name == "GRADWIRE_CHOICES" && value) {
      value = fs::absolute(*value).string();
    } else if (known.name == "GRADWIRE_JOIN") {
      value = options.join;
    } else if (known.name == "GRADWIRE_LET_JOIN") {
      value = options.let_join;
    } else if (known.name == "GRADWIRE_REPORT") {
      value = report;
    } else if (known.name == "GRADWIRE_DRY_RUN" && options.dry_run) {
      value = "1";
    } else if (known.name == "GRADWIRE_THREADS" && options.threads) {
      value = options.threads;
    } else if (known.name == "GRADWIRE_RESTART" && options.restarts > 0) {
      value = std::to_string(restart);
    }
    if (value) {
      ranks.emplace_back(known.name, *value);
    }
  }
  const std::string others = variable("LD_PRELOAD");
  ranks.emplace_back("LD_PRELOAD", preload.string() + (others.empty() ? "" : ":" + others));
  return ranks;
}

// What is known of a command before it starts.
struct Command {
  std::optional<std::size_t> launcher;  // mpirun's index, whose ranks all have one MPI
  std::optional<Library> mpi;           // that
  std::optional<fs::path> job;
};

// Why a job that ended well has left no report.
std::string without_report(const ReportFile& report, const std::optional<fs::path>& job, bool of_script) {
  if (job && statically_linked(*job)) {
    return job->string() + " is statically linked, so nothing can be preloaded into it";
  }
  return std::string("no rank called MPI_Finalize with gradwire preloaded: the job is no MPI job, ") +
         (of_script ? "or the script drops the environment (env -i, sudo), " : "") +
         "or its rank 0 ran on a host that does not share " + report.path().parent_path().string() +
         (report.named() ? "" : "; name a file or a directory that all hosts share by --report");
}

void tell_of(const fs::path& report, std::ostream& out) {
  try {
    const Report read = read_report(report);
    out << '\n' << read.text;
    if (read.calls == 0) {
      out << "gradwire: warning: the job called no function that gradwire handles, so nothing was compressed\n";
    } else if (read.ranks == 1) {
      out << "gradwire: warning: the job has one rank, which sends nothing; start more, as by mpirun -np 4\n";
    } else if (read.compressed_calls == 0 && !read.observed) {
      out << "gradwire: warning: no call was compressed; the table says why\n";
    }
  } catch (const Error& error) {
    out << "gradwire: " << error.what() << '\n';
  }
}

// A job of sessions alone calls nothing that the drop-in would replace.
bool tells_of_nothing(const fs::path& report) {
  try {
    return read_report(report).calls == 0;
  } catch (const Error&) {
    return false;
  }
}

// Of a run that failed.
std::string steps_of(const ReportFile& report) {
  double steps = 0;
  try {
    if (report.has_histories()) {
      for (const page::RankHistory& rank : page::read_job(*report.directory()).ranks) {
        steps = std::max(steps, rank.last("steps"));
      }
    }
  } catch (const Error&) {  // half written
  }
  return steps > 0 ? "its ranks had told of " + std::to_string(static_cast<long long>(steps)) + " steps" : "";
}

// Whatever became of the job.
void make_page(const fs::path& folder, std::ostream& out) {
  const page::PageFiles files = page::files_in(folder);
  try {
    const page::Summary summary = page::write_page(folder, files);
    for (const std::string& sentence : summary.advice) {
      out << "gradwire: " << text::printable(sentence) << '\n';
    }
    for (const std::string& note : summary.notes) {
      out << "gradwire: note: " << note << '\n';
    }
    out << "gradwire: the report is " << files.html.string() << '\n';
  } catch (const Error& error) {
    out << "gradwire: no page was made: " << text::printable(error.what()) << '\n';
  }
}

void tell(const ReportFile& file, const Command& command, int status, std::ostream& out) {
  std::vector<fs::path> reports = file.written();
  if (file.has_histories()) {
    std::erase_if(reports, tells_of_nothing);
    if (reports.empty()) {
      return;
    }
  }
  for (const fs::path& report : reports) {
    tell_of(report, out);
  }
  if (reports.empty() && status == 0) {
    out << "gradwire: warning: no report was written: " << without_report(file, command.job, !command.mpi) << '\n';
  } else if (reports.empty()) {
    out << "gradwire: the job ended with status " << status << " before it wrote a report\n";
  }
}

Command look_at(const RunOptions& options, std::optional<std::size_t> launcher) {
  Command command{.launcher = launcher, .mpi = {}, .job = {}};
  command.job = find_job(options.command, command.launcher ? *command.launcher + 1 : 0);
  const auto linked = linked_with(command.job.value_or(""));  // nothing of what is no program
  if (!command.launcher) {
    if (linked) {
      static_cast<void>(preload_of(*linked));  // or it is told here what is missing
    }
    return command;
  }
  const std::string& name = options.command[*command.launcher];
  command.mpi = library_of(name);
  if (linked.value_or(*command.mpi) != *command.mpi) {
    refuse(command.job->string() + " is linked with " + std::string(to_string(*linked)) + ", but " + name + " is of " +
           std::string(to_string(*command.mpi)) + "; start the job with the mpirun of " +
           std::string(to_string(*linked)));
  }
  return command;
}

}  // namespace

int run(const RunOptions& given, std::ostream& out) {
  const RunOptions options = with_join_files(given);
  const std::string& first = options.command.front();
  if (repeats_itself(options.command)) {
    refuse(
        "gradwire run stands in the command again; write it once, before everything else: gradwire run --codec int8 " +
        std::string("-- mpirun -np 4 ./job"));
  }
  if (only_submits(options.command)) {
    refuse(first + " returns before the job runs; put gradwire run inside: in the script, gradwire run -- srun ./job " +
           "or gradwire run -- mpirun ./job");
  }
  if (!find_program(first)) {
    const bool path = first.find('/') != std::string::npos;
    out << "gradwire: " << first
        << (path && fs::is_regular_file(first) ? " may not be executed; chmod +x lets it, or write sh before it\n"
                                               : std::string(" was not found") + (path ? "" : " in PATH") +
                                                     "; write the path of a program, or install an MPI (Debian: " +
                                                     "openmpi-bin or mpich) for its mpirun\n");
    return kCannotRunStatus;
  }
  const auto launcher = find_launcher(options.command);
  if (launcher && !find_program(options.command[*launcher])) {
    out << "gradwire: " << options.command[*launcher]
        << " was not found; install an MPI or write the path of its mpirun\n";
    return kCannotRunStatus;
  }
  const auto codec = checked_codec(options, out);
  const auto policy = checked_policy(options, out);
  check_environment();
  const Command command = look_at(options, launcher);
  const IgnoredBrokenPipes ignored_broken_pipes;
  const ReportFile report(options.report ? options.report : environment("GRADWIRE_REPORT"), !command.mpi);
  const fs::path preload = command.mpi ? preload_of(*command.mpi) : preload_of(kAnyPreload, "scripts and of srun");
  const auto launch = [&](const std::vector<std::string>& words, int restart) {
    const Environment ranks = rank_environment(options, policy, codec, report.variable(), preload, restart);
    return command.mpi
               ? make_launch(words, *command.launcher, *command.mpi, ranks, variable("OMPI_MCA_mca_base_env_list"))
               : inherit(words, ranks, variable("SLURM_EXPORT_ENV"));
  };
  if (command.job && statically_linked(*command.job)) {
    out << "gradwire: warning: " << command.job->string()
        << " is statically linked: nothing can be preloaded into it, so nothing will be compressed\n";
  }
  const auto between = [&report] {
    std::string did = steps_of(report);
    report.forget();
    return did;
  };
  const int status = run_restarting({.most = options.restarts,
                                     .command = options.command,
                                     .launcher = command.launcher,
                                     .mpi = command.mpi,
                                     .launch = launch,
                                     .between = between},
                                    out);
  if (!options.join) {  // who joins makes no call that could be replaced
    tell(report, command, status, out);
  }
  if (report.directory()) {
    make_page(*report.directory(), out);
  }
  return status;
}

}  // namespace gradwire::cli
