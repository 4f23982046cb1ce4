#include "drop_in/configuration.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/environment.hpp"
#include "base/mpi_job.hpp"
#include "base/own_files.hpp"
#include "base/read_file.hpp"
#include "base/report_place.hpp"
#include "base/start_directory.hpp"
#include "base/timeout.hpp"
#include "base/units.hpp"
#include "gradwire/version.hpp"
#include "plan/plan.hpp"
#include "policy/host_memory.hpp"
#include "security/job_key.hpp"
#include "security/key_file.hpp"
#include "security/key_schedule.hpp"

namespace gradwire::drop_in {
namespace {

constexpr std::size_t kMaxChoicesBytes = std::size_t{64} << 20;
constexpr std::array<char, 4> kMagic{'g', 'w', 'd', '2'};

template <std::size_t N>
void put(std::array<char, N>& field, std::string_view text) {
  std::copy_n(text.begin(), std::min(text.size(), N - 1), field.begin());
}

template <std::size_t N>
std::string_view get(const std::array<char, N>& field) {
  return {field.data(), static_cast<std::size_t>(std::find(field.begin(), field.end(), '\0') - field.begin())};
}

// Refuses variables for settings that a policy itself contains.
void check_beside_a_policy() {
  const auto refuse = [](const char* name, const char* instead) {
    const std::string value = environment(name).value_or("");
    if (!value.empty() && value != "0" && value != "auto") {
      throw Error(ErrorCode::invalid_argument,
                  "GRADWIRE_POLICY and " + std::string(name) + " are both set; " + instead);
    }
  };
  if (environment("GRADWIRE_CODEC")) {  // `auto`, too
    throw Error(ErrorCode::invalid_argument,
                "GRADWIRE_POLICY and GRADWIRE_CODEC are both set; a policy names its codecs itself, so unset one");
  }
  refuse("GRADWIRE_ERROR_FEEDBACK", "write error_feedback in the policy, and unset this");
  refuse("GRADWIRE_MAX_ERROR", "write max_error in the policy, and unset this");
  refuse("GRADWIRE_F64", "write a rule with dtype = \"f64\" in the policy, and unset this");
}

// Adds settings that GRADWIRE_CODEC cannot express.
void add_options(Policy& policy) {
  const auto feedback = environment("GRADWIRE_ERROR_FEEDBACK");
  if (feedback && *feedback != "auto") {
    policy.defaults.error_feedback = *feedback == "on" ? ErrorFeedback::on : ErrorFeedback::off;
  }
  if (const auto bound = environment("GRADWIRE_MAX_ERROR")) {
    policy.defaults.max_error = parse_fraction(*bound);
  }
  if (environment_flag("GRADWIRE_F64")) {
    Policy::Rule rule;
    rule.match.dtype = DType::f64;
    rule.policy = policy.defaults;
    policy.rules.push_back(rule);
  }
}

Policy policy_of_environment(bool measures) {
  const auto file = environment("GRADWIRE_POLICY");
  const auto codec = environment("GRADWIRE_CODEC");
  if (file) {
    check_beside_a_policy();
    Policy policy = Policy::load(from_start_directory(*file));
    policy.source = *file;
    return policy;
  }
  const bool automatic = codec ? *codec == "auto" : measures;
  if (codec && !automatic) {
    try {
      static_cast<void>(CodecSpec::parse(*codec));
    } catch (const Error& error) {  // kept short, since ranks exchange the text
      throw Error(error.code(),
                  "GRADWIRE_CODEC is \"" + *codec + "\"; write auto, int8, bf16, int4, topk(1%)+int8 or another codec");
    }
  }
  Policy policy = automatic ? Policy::automatic({"int8"}) : codec ? Policy::uniform(*codec) : Policy();
  policy.source = codec ? "GRADWIRE_CODEC=" + *codec : "built-in";
  add_options(policy);
  return policy;
}

std::uint32_t number_in_job() {
  if (const int number = rank_in_job(); number >= 0) {
    return static_cast<std::uint32_t>(number);
  }
  throw Error(
      ErrorCode::unsupported,
      "GRADWIRE_CHOICES: processes of a job that calls NCCL have files of their own, by their numbers; set RANK");
}

// An existing file is followed; otherwise the file is to be written.
void read_choices(Configuration& configuration, const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    configuration.recording = file;
    return;
  }
  const std::string text = read_file(file, kMaxChoicesBytes, "file of choices (GRADWIRE_CHOICES)");
  try {
    configuration.script = choices_from_text(text, configuration.policy_fingerprint());
  } catch (const Error& error) {
    throw Error(error.code(),
                "GRADWIRE_CHOICES: " + file + ": " + error.what() + "; name another file to record anew, or remove it");
  }
}

void read_into(Configuration& configuration, bool measures, Configuration::KeyUse key) {
  check_environment(ObservingToo::no);
  if (key == Configuration::KeyUse::passes) {
    security::refuse_key("this drop-in", "use the drop-in for MPI, or a session of gradwire");
  } else if (const auto setting = security::key_setting()) {
    configuration.key_check = check_value(security::Cryptography::load(), security::read_key_file(setting->file));
  }
  const std::string log = environment("GRADWIRE_LOG").value_or("warn");
  configuration.quiet = log == "error" || log == "off";
  configuration.tells_status = log == "info" || log == "debug";
  configuration.dry_run = environment_flag("GRADWIRE_DRY_RUN");
  configuration.node_kernel_asked = environment_flag("GRADWIRE_NODE_KERNEL");
  configuration.node_kernel = configuration.node_kernel_asked || !environment("GRADWIRE_NODE_KERNEL");
  if (const auto place = report_place_of_environment()) {
    configuration.report = place->calls;
    std::error_code ignored;  // writing the file gives the error
    if (place->directory) {
      make_own_folders(*place->directory, ignored);
    }
  }
  if (const auto mark = configuration.report ? configuration.report->find("%p") : std::string::npos;
      mark != std::string::npos) {
    configuration.report->replace(mark, 2, std::to_string(::getpid()));
  }
  configuration.timeout = timeout_of_environment();
  if (const auto wait = environment("GRADWIRE_WARN_AFTER")) {
    configuration.warn_after = std::chrono::duration_cast<std::chrono::milliseconds>(parse_duration(*wait));
  }
  if (environment_flag("GRADWIRE_DISABLE")) {
    configuration.disabled = "GRADWIRE_DISABLE=1";
    configuration.mode = Mode::disabled;
    return;
  }
  const bool named = environment("GRADWIRE_POLICY") || environment("GRADWIRE_CODEC");
  configuration.mode = named && !configuration.dry_run ? Mode::compressing : Mode::observing;
  configuration.raise_threads = environment("GRADWIRE_THREADS") == "multiple";
  configuration.planner = plan::CallPlanner(policy_of_environment(measures),
                                            measures ? plan::AutoFeedback::never : plan::AutoFeedback::where_allowed);
  if (const Policy& policy = configuration.planner.policy();
      !(policy.memory == Policy::Memory() && policy.security == Policy::Security())) {
    policy::configure_host_memory(policy, 1);
  }
  if (!measures && policy::packs_frames(configuration.planner.policy())) {
    throw Error(ErrorCode::unsupported,
                "policy " + configuration.planner.policy().source + ": " + std::string(policy::kPacksOnHosts));
  }
  if (!measures && policy::places_residuals(configuration.planner.policy())) {
    throw Error(ErrorCode::unsupported,
                "policy " + configuration.planner.policy().source + ": " + std::string(policy::kResidualsOnHosts));
  }
  if (!measures && configuration.planner.bounds_errors()) {
    throw Error(ErrorCode::unsupported,
                "policy " + configuration.planner.policy().source + ": " + std::string(plan::kBoundOfNccl));
  }
  if (const auto file = environment("GRADWIRE_CHOICES"); file && configuration.planner.is_auto()) {
    const std::string whole = from_start_directory(*file);
    if (!measures) {
      configuration.number_in_job = number_in_job();
    }
    read_choices(configuration, measures ? whole : whole + ".nccl-" + std::to_string(configuration.number_in_job));
  }
}

std::string first_of(std::span<const RankSettings> all, std::size_t rank) {
  const RankSettings& settings = all[rank];
  const char* what = settings.mode == Mode::compressing ? " has policy " : " only observes, policy ";
  return "rank " + std::to_string(rank) + what + std::string(get(settings.text)) +
         (settings.dry_run != 0 ? ", dry run" : "") + " (" + std::string(get(settings.fingerprint)) + ")";
}

}  // namespace

std::optional<std::chrono::milliseconds> timeout_of_environment() {
  const auto text = environment("GRADWIRE_TIMEOUT");
  return text ? std::optional(checked_timeout(
                    std::chrono::duration_cast<std::chrono::milliseconds>(parse_duration(*text)), "GRADWIRE_TIMEOUT"))
              : std::nullopt;
}

std::string Configuration::policy_fingerprint() const { return plan::fingerprint_of(planner.describe()); }

std::chrono::milliseconds Configuration::longest_wait() const noexcept { return timeout.value_or(kLongestTimeout); }

Configuration Configuration::read(bool measures, KeyUse key) {
  Configuration configuration;
  try {
    read_into(configuration, measures, key);
  } catch (const std::exception& error) {
    configuration.disabled = error.what();
    configuration.mode = Mode::disabled;
  }
  return configuration;
}

RankSettings RankSettings::of(const Configuration& configuration) {
  RankSettings settings;
  settings.magic = kMagic;
  settings.mode = configuration.mode;
  settings.dry_run = configuration.dry_run ? 1 : 0;
  const std::string timeout =
      configuration.timeout ? std::to_string(configuration.timeout->count()) + " ms" : std::string("none");
  put(settings.fingerprint,
      plan::fingerprint_of("gradwire " + std::string(kVersion) + ", timeout " + timeout + "\n" +
                           (configuration.key_check.empty() ? "" : "key " + configuration.key_check + "\n") +
                           configuration.planner.describe() +
                           (configuration.script ? choices_to_text(*configuration.script, "") : "")));
  put(settings.text, configuration.mode == Mode::disabled ? std::string_view(configuration.disabled)
                                                          : std::string_view(configuration.planner.policy().source));
  return settings;
}

AgreedSettings agree(std::span<const RankSettings> all, int own_rank, const Configuration* mine) {
  AgreedSettings agreement;
  std::vector<int> disabled;
  std::optional<std::size_t> other;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const RankSettings& settings = all[rank];
    if (settings.mode == Mode::disabled) {
      disabled.push_back(static_cast<int>(rank));
    } else if (!other && (settings.fingerprint != all[0].fingerprint || settings.magic != all[0].magic ||
                          settings.mode != all[0].mode || settings.dry_run != all[0].dry_run)) {
      other = rank;
    }
  }
  agreement.disabled = !disabled.empty();
  agreement.ranks_differ = other.has_value();
  agreement.mode = all.empty() || agreement.disabled || other ? Mode::disabled : all[0].mode;
  agreement.dry_run = !all.empty() && all[0].dry_run != 0;
  agreement.requests =
      std::all_of(all.begin(), all.end(), [](const RankSettings& settings) { return settings.requests != 0; });
  if (agreement.disabled) {
    const RankSettings& first = all[static_cast<std::size_t>(disabled.front())];
    agreement.teller = disabled.front();
    const bool here = mine != nullptr && own_rank == agreement.teller;
    const std::string why = here ? mine->disabled : std::string(get(first.text));
    agreement.disabled_because = "disabled on " + name_ranks(disabled) + " (" + why + ")";
  } else if (other) {
    agreement.disabled_because = "ranks differ: " + first_of(all, 0) + ", " + first_of(all, *other) +
                                 "; give every rank the same policy, key, GRADWIRE_ variables and version";
  }
  return agreement;
}

std::string AgreedSettings::warning() const {
  return disabled_because.empty() ? "" : "every call is passed through: " + disabled_because;
}

std::string name_ranks(std::span<const int> ranks) {
  constexpr std::size_t kMost = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i) {
    const bool last = i + 1 == ranks.size();
    text += (i == 0 ? "" : (last ? " and " : ", ")) + std::to_string(ranks[i]);
  }
  return ranks.size() <= kMost ? text : text + " and " + std::to_string(ranks.size() - kMost) + " more";
}

}  // namespace gradwire::drop_in
