// gradwire: checks policies, shows the build, runs unchanged jobs with compressed collectives.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "cli/advice_options.hpp"
#include "cli/command_tree.hpp"
#include "cli/commands.hpp"
#include "cli/job_options.hpp"
#include "cli/key_options.hpp"
#include "cli/viewer_options.hpp"
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

struct CheckOptions {
  std::string policy;
  int ranks = 4;
};

CLI::App* add_check(CLI::App& app, CheckOptions& options) {
  auto* check_command =
      app.add_subcommand("check", "Explain a policy file, or say what is wrong in it: gradwire check policy.toml");
  check_command->add_option("policy", options.policy, "TOML file")->type_name("FILE")->required();
  check_command->add_option("--ranks", options.ranks, "world size for which second hops and algorithms are shown")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  return check_command;
}

struct InfoFlags {
  bool link = false;
  bool topology = false;
};

CLI::App* add_info(CLI::App& app, InfoFlags& flags) {
  auto* info_command =
      app.add_subcommand("info", "Show version, libraries, CPU features and environment variables: gradwire info");
  CLI::Option* link = info_command->add_flag("--link", flags.link,
                                             "Measure the links of a job instead: mpirun -np 4 gradwire info --link");
  info_command
      ->add_flag("--topology", flags.topology,
                 "Draw this host's memory nodes, cores and network cards instead, and say what gradwire binds to them")
      ->excludes(link);
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
    if (argv[1] == key_.key().get_name()) {
      check_first_argument(key_.key(), "gradwire key", static_cast<int>(dashes - argv) - 1, argv + 1);
    }
    try {
      app_.parse(static_cast<int>(dashes - argv), argv);
    } catch (const CLI::ExtrasError& error) {
      refuse_third_run();
      return app_.exit(error) == 0 ? 0 : kUsageStatus;
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
  // Throws Error(invalid_argument) where `gradwire report` got more directories than it compares.
  void refuse_third_run() const {
    const std::vector<std::string> rest = report_->remaining(true);
    if (*report_ && !rest.empty() && !rest.front().starts_with('-')) {
      throw Error(ErrorCode::invalid_argument,
                  "report: " + rest.front() + " is one directory too many; a page shows one run, or compares two");
    }
  }
  // Runs the commands that take no other command behind "--".
  int answer() {
    if (*check_) {
      return check(check_options_.policy, check_options_.ranks, std::cout);
    }
    if (*info_) {
      if (info_flags_.topology) {
        return info_topology(std::cout);
      }
      return info_flags_.link ? info_link() : info(std::cout);
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
    if (key_.key()) {
      return key_.run(std::cout);
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
  InfoFlags info_flags_;
  CLI::App* info_ = add_info(app_, info_flags_);
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
  KeyCommands key_{app_};
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
