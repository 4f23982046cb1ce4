// gradwire run: refuses what cannot work before it starts anything, starts the job (again after a failure, if that was
// asked for), and prints a report on its calls.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/environment.hpp"
#include "base/job_name.hpp"
#include "base/record_target.hpp"
#include "base/units.hpp"
#include "cli/checked_options.hpp"
#include "cli/commands.hpp"
#include "cli/comparison.hpp"
#include "cli/elf.hpp"
#include "cli/emulated_link.hpp"
#include "cli/launch.hpp"
#include "cli/outcome.hpp"
#include "cli/preload.hpp"
#include "cli/process.hpp"
#include "cli/registration_server.hpp"
#include "cli/report.hpp"
#include "cli/report_file.hpp"
#include "cli/restarts.hpp"
#include "gradwire/error.hpp"
#include "record/recorder.hpp"
#include "security/job_key.hpp"
#include "security/key_file.hpp"

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

// The file of this name beside this program; `jobs` says for which jobs it is.
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

// Ignores SIGPIPE: the reader of our output may stop, as `head` does, and files must still be removed then.
class IgnoredBrokenPipes {
 public:
  IgnoredBrokenPipes() : before_(std::signal(SIGPIPE, SIG_IGN)) {}
  ~IgnoredBrokenPipes() { std::signal(SIGPIPE, before_); }
  IgnoredBrokenPipes(const IgnoredBrokenPipes&) = delete;
  IgnoredBrokenPipes& operator=(const IgnoredBrokenPipes&) = delete;

 private:
  void (*before_)(int);
};

// The value of GRADWIRE_RECORD_GRADIENTS. A folder in which nothing can be recorded is refused before the job begins.
std::optional<std::string> checked_recording(const RunOptions& options) {
  const auto given = environment("GRADWIRE_RECORD_GRADIENTS");
  if (!options.record_gradients && options.steps) {
    refuse("--steps says how many steps are recorded; write --record-gradients DIRECTORY, too");
  }
  if (!options.record_gradients && !given) {
    return std::nullopt;
  }
  RecordTarget target = given ? RecordTarget::parse(*given) : RecordTarget();
  target.directory = fs::absolute(options.record_gradients.value_or(target.directory)).string();
  target.steps = options.steps.value_or(target.steps);
  if (target.steps < 1 || target.steps > RecordTarget::kMostSteps) {
    refuse("--steps " + std::to_string(target.steps) + ": write a number from 1 to " +
           std::to_string(RecordTarget::kMostSteps));
  }
  record::check_recording_folder(target.directory);
  return target.to_string();
}

// Facts for ranks beside the options themselves.
struct RankSettings {
  std::optional<std::string> policy;
  std::optional<std::string> codec;
  CodecOptions beside;
  std::string report;
  std::optional<std::string> recording;
  fs::path preload;
};

// The environment of every rank: each of our variables that is set, and our preload before those of the user.
// `registration` is empty where ranks do not register. `without`: gradwire is disabled in the ranks.
Environment rank_environment(const RunOptions& options, const RankSettings& settings, const std::string& registration,
                             int restart, bool without) {
  Environment ranks;
  for (const EnvironmentVariable& known : environment_variables()) {
    std::optional<std::string> value = environment(known.name);
    if (known.name == "GRADWIRE_JOB") {
      value = name_of_started_job(options.let_join.value_or(options.join.value_or("")));
    } else if (known.name == "GRADWIRE_POLICY") {
      value = settings.policy;
    } else if (known.name == "GRADWIRE_CODEC") {
      value = settings.codec;
    } else if (known.name == "GRADWIRE_ERROR_FEEDBACK") {
      value = settings.beside.feedback;
    } else if (known.name == "GRADWIRE_F64") {
      value = settings.beside.f64;
    } else if (known.name == "GRADWIRE_MAX_ERROR") {
      value = settings.beside.max_error;
    } else if (known.name == "GRADWIRE_REGISTER" && (!registration.empty() || value)) {
      value = registration;  // even if empty: ranks must not reach another gradwire run in whose job this one runs
    } else if (known.name == "GRADWIRE_KEY" && value) {
      value = "file:" + security::key_setting()->file.string();  // ranks may start in other directories
    } else if (known.name == "GRADWIRE_CHOICES" && value) {
      value = fs::absolute(*value).string();
    } else if (known.name == "GRADWIRE_JOIN") {
      value = options.join;
    } else if (known.name == "GRADWIRE_LET_JOIN") {
      value = options.let_join;
    } else if (known.name == "GRADWIRE_RECORD_GRADIENTS") {
      value = settings.recording;
    } else if (known.name == "GRADWIRE_REPORT") {
      value = settings.report;
    } else if ((known.name == "GRADWIRE_DISABLE" && without) || (known.name == "GRADWIRE_DRY_RUN" && options.dry_run)) {
      value = "1";
    } else if (known.name == "GRADWIRE_THREADS" && options.threads) {
      value = options.threads;
    } else if (known.name == "GRADWIRE_EMULATED_LINK" && options.link) {
      value = options.link;
    } else if (known.name == "GRADWIRE_RESTART" && options.restarts > 0) {
      value = std::to_string(restart);
    }
    if (value) {
      ranks.emplace_back(known.name, *value);
    }
  }
  const std::string others = variable("LD_PRELOAD");
  ranks.emplace_back("LD_PRELOAD", settings.preload.string() + (others.empty() ? "" : ":" + others));
  return ranks;
}

// Makes the listener for registrations; none where ranks shall not register, or cannot.
std::unique_ptr<RegistrationServer> listen(const RunOptions& options, std::ostream& out) {
  if (options.no_register || options.join) {
    return nullptr;
  }
  try {
    const std::string interface = environment("GRADWIRE_SOCKET_IFNAME").value_or("");
    auto registrations = std::make_unique<RegistrationServer>(RegistrationServer::Options{.interface = interface});
    if (!interface.empty() && !registrations->remote_problem().empty()) {
      out << "gradwire: warning: ranks on other hosts cannot say that they have the drop-in, so that all calls would "
             "pass there: GRADWIRE_SOCKET_IFNAME: "
          << registrations->remote_problem() << '\n';
    }
    return registrations;
  } catch (const std::exception& error) {
    out << "gradwire: warning: ranks cannot say that they have the drop-in (" << error.what()
        << "); they find it out by a message in MPI_Init, as with --no-register\n";
    return nullptr;
  }
}

// AddressSanitizer's library starts a job only if it is loaded first, or if that check is off. It works behind our
// preloaded library as well. Its own advice, to preload it, does not help, since the user's preloads come after ours.
void check_sanitizer(const KnownCommand& command) {
  constexpr std::string_view kSetting = "verify_asan_link_order=0";
  const std::vector<std::string> needed = needed_libraries(command.job.value_or(""));
  const bool has_sanitizer = std::any_of(needed.begin(), needed.end(), [](const std::string& library) {
    return library.starts_with("libasan.so") || library.starts_with("libclang_rt.asan");
  });
  const bool set = variable("ASAN_OPTIONS").find(kSetting) != std::string::npos ||
                   std::any_of(command.words.begin(), command.words.end(),
                               [&](const std::string& word) { return word.find(kSetting) != std::string::npos; });
  if (has_sanitizer && !set) {
    refuse(
        command.job->string() + " is built with AddressSanitizer, whose library ends a process in which another one " +
        "is preloaded before it; set ASAN_OPTIONS=" + std::string(kSetting) +
        (command.mpi == Library::open_mpi ? " in the environment, and for ranks on other hosts mpirun -x ASAN_OPTIONS"
                                          : " in the environment"));
  }
}

KnownCommand look_at(const RunOptions& options, std::optional<std::size_t> launcher) {
  KnownCommand command{.words = options.command, .launcher = launcher};
  command.job = find_job(options.command, command.launcher ? *command.launcher + 1 : 0);
  const auto linked = linked_with(command.job.value_or(""));  // nothing if it is no program
  check_sanitizer(command);
  if (!command.launcher) {
    if (linked) {
      static_cast<void>(preload_of(*linked));  // throws where the library is missing
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

// A command that nothing speaks against, before it starts.
struct Job {
  RunOptions options;
  KnownCommand command;
  RankSettings settings;  // without the report
};

Job checked_job(const RunOptions& options, std::optional<std::size_t> launcher, std::ostream& out) {
  if (options.compare) {
    check_comparison(options);
  }
  const auto codec = checked_codec(options, out);
  const CodecOptions beside = checked_codec_options(options);
  const auto policy = checked_policy(options, out);
  check_environment();
  if (const auto key = security::key_setting()) {
    static_cast<void>(security::read_key_file(key->file));  // an error before the job starts, not in each rank
  }
  const auto recording = checked_recording(options);
  Job job{.options = options, .command = look_at(options, launcher), .settings = {}};
  job.command.compresses = (codec || policy) && !options.dry_run && !environment_flag("GRADWIRE_DRY_RUN");
  job.settings = {
      .policy = policy,
      .codec = codec,
      .beside = beside,
      .report = {},
      .recording = recording,
      .preload = job.command.mpi ? preload_of(*job.command.mpi) : preload_of(kAnyPreload, "scripts and of srun")};
  if (job.command.job && statically_linked(*job.command.job)) {
    out << "gradwire: warning: " << job.command.job->string()
        << " is statically linked: nothing can be preloaded into it, so nothing will be compressed\n";
  }
  return job;
}

// Adds what the reports of the ranks tell of.
void add_traffic(const ReportFile& reports, MeasuredRun& run) {
  for (const fs::path& file : reports.written()) {
    try {
      const Report report = read_report(file);
      run.dense_bytes += report.dense_bytes;
      run.sent_bytes += report.sent_bytes;
      run.compressed_calls = run.compressed_calls.value_or(0) + report.compressed_calls;
      run.has_session = run.has_session || report.has_session;
    } catch (const Error&) {  // tell_outcome() tells of it
    }
  }
}

// The status of a job that ended with `ended`, as its ranks saw the end; without registrations it is that one.
int judged_status(const RunOptions& options, const RegistrationServer* registrations, int ended, std::ostream& out) {
  const auto ranks = registrations != nullptr
                         ? outcome_of_ranks(registrations->seen(), ended, options.let_join.has_value())
                         : std::nullopt;
  if (!ranks) {
    return ended;
  }
  out << "gradwire: " << ranks->text
      << (ranks->status == ended ? "" : "; so the job failed, though its launcher ended with 0") << '\n';
  return ranks->status;
}

// Runs the command, again where it fails. `without`: gradwire is disabled in its ranks, and nothing is told of them.
MeasuredRun run_job(const Job& job, bool without, std::ostream& out) {
  const RunOptions& options = job.options;
  const KnownCommand& command = job.command;
  const IgnoredBrokenPipes ignored_broken_pipes;
  const ReportFile report(without ? std::nullopt : options.report, !command.mpi);
  RankSettings settings = job.settings;
  settings.report = report.variable();
  const std::unique_ptr<RegistrationServer> registrations = without ? nullptr : listen(options, out);
  const auto launch = [&](const std::vector<std::string>& words, int restart) {
    if (registrations && restart > 0) {
      registrations->start_anew();
    }
    const Environment ranks =
        rank_environment(options, settings, registrations ? registrations->variable() : "", restart, without);
    return command.mpi
               ? make_launch(words, *command.launcher, *command.mpi, ranks, variable("OMPI_MCA_mca_base_env_list"),
                             read_mca_files(words, *command.launcher, variable))
               : inherit(words, ranks, variable("SLURM_EXPORT_ENV"));
  };
  const auto between = [&report] {
    std::string did = steps_of(report);
    report.forget();
    return did;
  };
  const auto judge = [&](int ended) { return judged_status(options, registrations.get(), ended, out); };
  const Stopwatch stopwatch;
  const int status = run_restarting({.most = options.restarts,
                                     .command = options.command,
                                     .launcher = command.launcher,
                                     .mpi = command.mpi,
                                     .launch = launch,
                                     .between = between,
                                     .judge = judge},
                                    out);
  MeasuredRun run = stopwatch.stop(status);
  if (without) {
    return run;
  }
  if (options.compare) {
    add_traffic(report, run);
  }
  if (!options.join) {  // a process that joins makes no call that could be replaced
    tell_outcome(report, command, registrations ? std::optional(registrations->seen()) : std::nullopt, status, out);
  }
  if (report.directory()) {
    make_page(*report.directory(), out);
  }
  return run;
}

// Refuses commands that are none to run: gradwire run once more, or a program that returns before the job runs.
void check_command(const std::vector<std::string>& command) {
  if (repeats_itself(command)) {
    refuse(
        "gradwire run stands in the command again; write it once, before everything else: gradwire run --codec int8 " +
        std::string("-- mpirun -np 4 ./job"));
  }
  if (only_submits(command)) {
    refuse(command.front() +
           " returns before the job runs; put gradwire run inside: in the script, gradwire run -- srun ./job " +
           "or gradwire run -- mpirun ./job");
  }
}

// Whether the command's first program and its launcher are there; tells which one is not.
bool has_programs(const std::vector<std::string>& command, std::optional<std::size_t> launcher, std::ostream& out) {
  const std::string& first = command.front();
  if (!find_program(first)) {
    const bool path = first.find('/') != std::string::npos;
    out << "gradwire: " << first
        << (path && fs::is_regular_file(first) ? " may not be executed; chmod +x lets it, or write sh before it\n"
                                               : std::string(" was not found") + (path ? "" : " in PATH") +
                                                     "; write the path of a program, or install an MPI (Debian: " +
                                                     "openmpi-bin or mpich) for its mpirun\n");
    return false;
  }
  if (launcher && !find_program(command[*launcher])) {
    out << "gradwire: " << command[*launcher] << " was not found; install an MPI or write the path of its mpirun\n";
    return false;
  }
  return true;
}

// Checks --link, and moves this process into the namespace of that link.
void enter_link(const Job& job, const std::string& text, std::ostream& out) {
  const EmulatedLink link = parse_emulated_link(text);
  check_link_command(job.options.command, job.command.launcher, job.command.mpi);
  enter_emulated_link(link);
  out << "gradwire: emulated link of " << link.text
      << ", which all ranks share: MPI sends over TCP and the loopback device of a network namespace" << std::endl;
}

}  // namespace

int run(const RunOptions& given, std::ostream& out) {
  const RunOptions options = with_join_files(given);
  check_command(options.command);
  const auto launcher = find_launcher(options.command);
  if (!has_programs(options.command, launcher, out)) {
    return kCannotRunStatus;
  }
  const Job job = checked_job(options, launcher, out);
  if (options.link) {
    enter_link(job, *options.link, out);
  }
  if (options.compare) {
    return compare([&](bool without) { return run_job(job, without, out); }, options.link, out);
  }
  const MeasuredRun run = run_job(job, false, out);
  if (options.link) {
    out << "gradwire: the job ran over an emulated link of " << *options.link << " and sent "
        << format_bytes(run.loopback_bytes) << " over it\n";
  }
  return run.status;
}

}  // namespace gradwire::cli
