// gradwire: checks policies, shows the build, runs unchanged jobs with compressed collectives.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/text.hpp"
#include "cli/advice_options.hpp"
#include "cli/command_tree.hpp"
#include "cli/commands.hpp"
#include "gradwire/error.hpp"
#include "gradwire/version.hpp"
#include "policy/unknown_key.hpp"

namespace gradwire::cli {
namespace {

// Names a misspelt command, for which CLI11 only says that one is missing. `name` stands before `argv[1]`.
void check_first_argument(const CLI::App& app, const std::string& name, int argc, char** argv) {
  std::vector<std::string_view> names;
  std::string all;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); })) {
    names.push_back(command->get_name());
    all += (all.empty() ? "" : ", ") + command->get_name();
  }
  if (argc < 2) {
    throw Error(ErrorCode::invalid_argument, "a command is missing; write one of " + all + ", or " + name + " --help");
  }
  const std::string first = argv[1];
  if (first.starts_with("-")) {
    if (app.get_option_no_throw(first) == nullptr) {
      throw Error(ErrorCode::invalid_argument, first + " is no option of " + name + "; " + name + " --help lists them");
    }
  } else if (app.get_subcommands([&](const CLI::App* each) { return each->check_name(first); }).empty()) {
    const std::string nearest(policy::nearest_name(first, names));
    throw Error(ErrorCode::invalid_argument, "\"" + first + "\" is no command of " + name + "; " +
                                                 (nearest.empty() ? "write one of " + all + ", or " + name + " --help"
                                                                  : "did you mean " + name + " " + nearest + "?"));
  }
}

// Formats usage lines with the name of the arguments behind the options.
class CommandFormatter : public CLI::Formatter {
 public:
  explicit CommandFormatter(bool optional) : optional_(optional) {}
  std::string make_usage(const CLI::App* /*app*/, std::string name) const override {
    return "Usage: " + name + (optional_ ? " [OPTIONS] [-- COMMAND...]\n" : " [OPTIONS] -- COMMAND...\n");
  }

 private:
  bool optional_;
};

// The command of gradwire run or gradwire doctor, or an Error that shows where "--" belongs. `before` and `behind` are
// the arguments on its two sides; the latter begin with it, or are none.
std::vector<std::string> take_command(const CLI::App& app, const std::vector<std::string>& before,
                                      const std::vector<std::string>& behind, bool optional) {
  const std::string name = "gradwire " + app.get_name();
  const std::vector<std::string> others = app.remaining();
  if (!others.empty() && others.front().starts_with("-")) {
    throw Error(ErrorCode::invalid_argument, others.front() + " is no option of " + name + "; " + name +
                                                 " --help lists them, and the command comes behind --");
  }
  if (!others.empty()) {
    std::string line = "gradwire";
    for (std::size_t i = 1; i < before.size(); ++i) {
      line += (before.size() - i == others.size() ? " -- " : " ") + text::shell_word(before[i]);
    }
    for (std::size_t i = 1; i < behind.size(); ++i) {
      line += " " + text::shell_word(behind[i]);
    }
    throw Error(ErrorCode::invalid_argument, "-- must stand before the command; write " + line);
  }
  if (behind.size() < 2 && (!optional || !behind.empty())) {
    throw Error(ErrorCode::invalid_argument,
                "there is no command; write " + name + " -- mpirun -np 4" + (optional ? "" : " ./job"));
  }
  return behind.empty() ? std::vector<std::string>() : std::vector<std::string>(behind.begin() + 1, behind.end());
}

/// The tree as data; options without a group are hidden.
Command described(const CLI::App& app, const std::string& path = "") {
  Command command{app.get_name(), path, app.get_description(), {}, {}};
  for (const CLI::Option* option :
       app.get_options([](const CLI::Option* each) { return !each->get_group().empty(); })) {
    CommandOption one;
    for (const std::string& name : option->get_snames()) {
      one.names.push_back("-" + name);
    }
    for (const std::string& name : option->get_lnames()) {
      one.names.push_back("--" + name);
    }
    if (one.names.empty()) {
      one.names.push_back(option->get_name());
    }
    if (option->get_items_expected_max() > 0) {
      const std::string type = option->get_type_name();  // "INT:INT in [1 - 8]", "TEXT:{one,other}" with a check
      one.value = type.substr(0, type.find(':'));
      if (const std::size_t brace = type.find(":{"); brace != std::string::npos) {
        one.choices = type.substr(brace + 2, type.find('}') - brace - 2);
        std::replace(one.choices.begin(), one.choices.end(), ',', ' ');
      }
    }
    one.fallback = option->get_default_str();
    one.meaning = option->get_description();
    one.required = option->get_required();
    command.options.push_back(one);
  }
  if (app.get_prefix_command()) {
    CommandOption one;
    one.names = {"command"};
    one.meaning = "the command that starts the jobs, after --";
    one.required = app.get_name() == "run";
    one.repeated = true;
    command.options.push_back(one);
  }
  for (const CLI::App* child : app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); })) {
    command.commands.push_back(described(*child, path + (path.empty() ? "" : " ") + child->get_name()));
  }
  return command;
}

// CLI11 would not say what to write.
std::string is_restarts(const std::string& text) {
  constexpr int kMost = 1000000;
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool right = error == std::errc() && end == text.data() + text.size() && number >= 0 && number <= kMost;
  return right ? ""
               : text::quote(text) + " is no number of restarts; write one from 0 to " + std::to_string(kMost) +
                     ", such as --restarts 3";
}

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  auto* run_command = app.add_subcommand(
      "run", "Run unchanged MPI jobs with compressed collectives: gradwire run --codec auto -- mpirun -np 4 ./job");
  run_command->formatter(std::make_shared<CommandFormatter>(false));
  run_command->footer("COMMAND: mpirun, srun, a script, or anything else that starts MPI jobs\n");
  run_command
      ->add_option("--policy", options.policy, "policy file, instead of --codec (gradwire check FILE explains it)")
      ->type_name("FILE");
  run_command
      ->add_option(
          "--codec", options.codec,
          "compress large float sums with this codec, which is lossy: int8, int4, ...; auto: int8 for those that "
          "it makes faster, found by trials in which the job gets MPI's sums. Without a codec or policy the job is "
          "observed: nothing is compressed, calls are timed, and the table says what auto would save")
      ->type_name("CODEC");
  run_command
      ->add_option("--report", options.report,
                   "directory for a page about the job, made from what its ranks did over time; with a name that ends "
                   "in .json: file for what became of the calls")
      ->type_name("DIRECTORY");
  run_command->add_flag("--dry-run", options.dry_run,
                        "observe, and count what the codec or policy, or int8 without one, would send");
  run_command->add_flag("--no-feedback", options.no_feedback,
                        "do not add what the codec leaves out of a call to the next one (in a policy: error_feedback = "
                        "\"off\"): for sums that are not gradients, and where tensors share a buffer");
  run_command->add_flag("--f64", options.f64, "also compress sums of f64 (in a policy: a rule with dtype = \"f64\")");
  run_command
      ->add_option("--max-error", options.max_error,
                   "leave calls uncompressed once their sums differ from the exact ones by more than this share, such "
                   "as 1% (in a policy: max_error)")
      ->type_name("SHARE");
  run_command
      ->add_option(
          "--threads", options.threads,
          "multiple: initialise MPI with that thread level, so that calls that return requests can be compressed; "
          "job: with the level that the job asks for")
      ->check(CLI::IsMember({"multiple", "job"}));
  run_command->add_flag("--no-register", options.no_register,
                        "do not listen for connections of ranks: every rank must then have the drop-in, and ranks find "
                        "out by a message in MPI_Init whether all do");
  run_command
      ->add_option("--link", options.link,
                   "emulate a slow link between the ranks of this host, which share it: everything that they send, by "
                   "gradwire or not, passes a network namespace of that rate, or rate and latency: 1Gbit/s,5ms")
      ->type_name("RATE[,LATENCY]");
  run_command->add_flag("--compare", options.compare,
                        "run the command twice, first without gradwire, then with it, and print times, bytes and "
                        "ratios; files that it writes are written twice");
  run_command
      ->add_option(
          "--record-gradients", options.record_gradients,
          "a directory: rank 0 writes the buffers of its sums there, as they are before each call, for gradwire "
          "ratio and gradwire plan --from")
      ->type_name("DIRECTORY");
  run_command->add_option("--steps", options.steps, "with it: so many steps, and not 5")->type_name("N");
  run_command
      ->add_option("--restarts", options.restarts,
                   "start the command again if it fails, at most this many times, on the hosts that are left; the job "
                   "continues from what it saved itself")
      ->type_name("N")
      ->check(is_restarts)
      ->capture_default_str();
  run_command
      ->add_option("--let-join", options.let_join,
                   "other processes may join this elastic job while it runs, by this file, which the job writes")
      ->type_name("FILE");
  run_command
      ->add_option("--join", options.join,
                   "join the job that wrote this file, without mpirun: gradwire run --join FILE -- ./job")
      ->type_name("FILE");
  run_command->prefix_command();  // take_command() reads arguments where "--" was forgotten
  return run_command;
}

CLI::App* add_report(CLI::App& app, ReportOptions& options) {
  auto* report_command = app.add_subcommand(
      "report", "Make an HTML page about a job from the files of its ranks: gradwire report /tmp/report");
  report_command
      ->add_option("directory", options.folder,
                   "directory that the job's GRADWIRE_REPORT named; or a report of replaced calls, FILE.json, whose "
                   "table is printed")
      ->type_name("DIRECTORY")
      ->required();
  report_command
      ->add_option("-o,--output", options.output, "file for the page; without it report.html in the directory")
      ->type_name("FILE");
  report_command->add_option("second", options.second, "directory of a second run: the page then compares both")
      ->type_name("SECOND");
  report_command
      ->add_option("--job", options.jobs,
                   "name of the job; without it the one that began last. Given twice: the two jobs that are compared, "
                   "of one directory or of two")
      ->type_name("NAME")
      ->allow_extra_args(false);
  report_command->add_option("--json", options.json, "file for its numbers; without it beside the page, as .json")
      ->type_name("FILE");
  return report_command;
}

CLI::App* add_doctor(CLI::App& app, DoctorOptions& options) {
  auto* doctor_command = app.add_subcommand(
      "doctor", "Check hosts, ranks and links of an MPI job: gradwire doctor -- mpirun --host a,b -np 4");
  doctor_command->formatter(std::make_shared<CommandFormatter>(true));
  doctor_command->footer("COMMAND: mpirun or srun with its options; without one, this process is a rank of the job\n");
  doctor_command->add_option("--json", options.json, "also write everything that was seen to this file, as JSON")
      ->type_name("FILE");
  doctor_command->add_flag("--launched", options.launched, "of ranks that gradwire doctor itself starts")->group("");
  doctor_command->prefix_command();
  return doctor_command;
}

CLI::App* add_top(CLI::App& app, TopOptions& options) {
  auto* top_command = app.add_subcommand(
      "top", "Show the ranks of a running job from the metrics that it writes: gradwire top /tmp/metrics");
  top_command->add_option("directory", options.folder, "directory that the job's GRADWIRE_METRICS=file:DIRECTORY names")
      ->type_name("DIRECTORY")
      ->required();
  top_command->add_option("--job", options.job, "name of the job; without it the one that runs, or ran, last")
      ->type_name("NAME");
  top_command->add_flag("--once", options.once, "print one block of lines, with means since the job's start");
  top_command->add_option("--interval", options.interval, "time between two looks")->capture_default_str();
  return top_command;
}

struct TraceCommands {
  CLI::App* trace = nullptr;
  CLI::App* merge = nullptr;
  CLI::App* summary = nullptr;
};

TraceCommands add_trace(CLI::App& app, TraceOptions& options) {
  TraceCommands commands;
  commands.trace = app.add_subcommand("trace", "Show what all ranks of a job did, from the events that they recorded");
  commands.trace->require_subcommand(1);
  commands.merge = commands.trace->add_subcommand(
      "merge", "Write one timeline of all ranks for ui.perfetto.dev: gradwire trace merge /tmp/trace");
  commands.summary = commands.trace->add_subcommand(
      "summary", "Say which rank, bucket and stage the steps waited for: gradwire trace summary /tmp/trace");
  for (CLI::App* const each : {commands.merge, commands.summary}) {
    each->add_option("directory", options.folder, "directory that the job's GRADWIRE_TRACE named")
        ->type_name("DIRECTORY")
        ->required();
    each->add_option("--steps", options.steps, "only these steps, such as 100-120");
  }
  commands.merge
      ->add_option("-o,--output", options.output, "file for the timeline; without it trace.pftrace in that directory")
      ->type_name("FILE");
  commands.summary->add_flag("--json", options.json, "print JSON, for programs");
  return commands;
}

struct CheckOptions {
  std::string policy;
  int ranks = 4;
};

CLI::App* add_check(CLI::App& app, CheckOptions& options) {
  auto* check_command = app.add_subcommand("check", "Explain a policy file, or say what is wrong in it");
  check_command->add_option("policy", options.policy, "TOML file")->type_name("FILE")->required();
  check_command->add_option("--ranks", options.ranks, "world size for which second hops and algorithms are shown")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  return check_command;
}

CLI::App* add_info(CLI::App& app, bool& link) {
  auto* info_command = app.add_subcommand("info", "Show version, libraries, CPU features and environment variables");
  info_command->add_flag("--link", link, "Measure the links of a job instead: mpirun -np 4 gradwire info --link");
  return info_command;
}

CLI::App* add_completion(CLI::App& app, std::string& shell) {
  auto* completion_command = app.add_subcommand(
      "completion", "Print a script that completes this tool's command line: source <(gradwire completion bash)");
  completion_command->add_option("shell", shell, "shell that runs the script")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kShells), std::end(kShells))))
      ->required();
  return completion_command;
}

CLI::App* add_documents(CLI::App& app, std::string& folder) {
  auto* documents_command =
      app.add_subcommand("documents", "Write man pages and completions, for the build")->group("");
  documents_command->add_option("folder", folder, "folder to write to")->required();
  return documents_command;
}

// The whole command line: its commands in the order in which --help lists them, and the options of each.
class Tool {
 public:
  Tool() {
    app_.set_version_flag("--version", std::string(kVersion));
    app_.require_subcommand(1);
  }

  int run_line(int argc, char** argv) {
    // All arguments behind the first "--" belong to the command.
    char** const end = argv + argc;
    char** const dashes =
        std::find_if(argv, end, [](const char* argument) { return std::string_view(argument) == "--"; });
    check_first_argument(app_, "gradwire", static_cast<int>(dashes - argv), argv);
    if (argv[1] == trace_.trace->get_name()) {
      check_first_argument(*trace_.trace, "gradwire trace", static_cast<int>(dashes - argv) - 1, argv + 1);
    }
    try {
      app_.parse(static_cast<int>(dashes - argv), argv);
    } catch (const CLI::ParseError& error) {
      return app_.exit(error) == 0 ? 0 : kUsageStatus;
    }
    if (*doctor_) {
      doctor_options_.command = take_command(*doctor_, {argv, dashes}, {dashes, end}, true);
      return doctor(doctor_options_, std::cerr);
    }
    if (*run_) {
      run_options_.command = take_command(*run_, {argv, dashes}, {dashes, end}, false);
      return run(run_options_, std::cerr);  // standard output belongs to the job
    }
    return answer();
  }

 private:
  // Runs the commands that take no other command behind "--".
  int answer() {
    if (*check_) {
      return check(check_options_.policy, check_options_.ranks, std::cout);
    }
    if (*info_) {
      return link_ ? info_link() : info(std::cout);
    }
    if (*plan_) {
      return plan(plan_options_, std::cout);
    }
    if (*ratio_) {
      return ratio(ratio_options_, std::cout);
    }
    if (*report_) {
      return report(report_options_, std::cout);
    }
    if (*top_) {
      return top(top_options_, std::cout);
    }
    if (*trace_.trace) {
      return *trace_.merge ? trace_merge(trace_options_, std::cout) : trace_summary(trace_options_, std::cout);
    }
    if (*completion_) {
      write_completion(described(app_), shell_, std::cout);
    }
    if (*documents_) {
      write_documents(described(app_), folder_);
    }
    return 0;
  }

  CLI::App app_{"Compressed collectives for training jobs", "gradwire"};
  CheckOptions check_options_;
  CLI::App* check_ = add_check(app_, check_options_);
  bool link_ = false;
  CLI::App* info_ = add_info(app_, link_);
  PlanCommandOptions plan_options_;
  CLI::App* plan_ = add_plan(app_, plan_options_);
  RatioOptions ratio_options_;
  CLI::App* ratio_ = add_ratio(app_, ratio_options_);
  RunOptions run_options_;
  CLI::App* run_ = add_run(app_, run_options_);
  ReportOptions report_options_;
  CLI::App* report_ = add_report(app_, report_options_);
  DoctorOptions doctor_options_;
  CLI::App* doctor_ = add_doctor(app_, doctor_options_);
  TopOptions top_options_;
  CLI::App* top_ = add_top(app_, top_options_);
  TraceOptions trace_options_;
  TraceCommands trace_ = add_trace(app_, trace_options_);
  std::string shell_;
  CLI::App* completion_ = add_completion(app_, shell_);
  std::string folder_;
  CLI::App* documents_ = add_documents(app_, folder_);
};

}  // namespace
}  // namespace gradwire::cli

int main(int argc, char** argv) {
  try {
    return gradwire::cli::Tool().run_line(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "gradwire: " << gradwire::text::printable_lines(error.what()) << '\n';
    return gradwire::cli::kUsageStatus;
  }
}
