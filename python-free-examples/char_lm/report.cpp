#include "report.hpp"

#include <mpi.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "gradwire/version.hpp"

namespace char_lm {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLineCells = 79;  // of a bar's line: a longer one would wrap on a common terminal and not be redrawn
constexpr int kFewestBarCells = 8, kMostBarCells = 30;
constexpr double kMega = 1e6;

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

std::string utc_now() {
  char text[32];
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&time, &utc);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version(text, static_cast<std::size_t>(length));
  return version.substr(0, version.find(','));
}

Json describe_machine() {
  utsname system{};
  uname(&system);
  return Json{{"cpu", cpu_model()},
              {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
              {"kernel", std::string(system.sysname) + " " + system.release},
              {"compiler", __VERSION__},
              {"mpi", mpi_version()},
              {"gradwire", std::string(gradwire::kVersion)},
              {"date", utc_now()}};
}

double percent_over(double value, double base) { return 100 * (value / base - 1); }

const RunResult* find_dense(const std::vector<RunResult>& rows) {
  const auto row = std::find_if(rows.begin(), rows.end(), [](const RunResult& r) { return r.policy == "dense"; });
  return row == rows.end() ? nullptr : &*row;
}

double exposed_percent(const RunResult& row) { return 100 * row.exposed_comm_ms / row.ms_per_step; }

/// Prints the choices that were made during the run, if any.
void print_choices(const RunResult& row) {
  if (!row.switches.empty()) {
    std::string codecs;
    for (const std::string& codec : row.codecs) {
      codecs += (codecs.empty() ? "" : "; ") + codec.substr(codec.starts_with("auto: ") ? 6 : 0);
    }
    std::printf("%s chose %s\n", row.policy.c_str(), codecs.c_str());
  }
  if (!row.advised.empty()) {
    std::printf(
        "%s: %d micro-steps in %d steps, %.1f s, exposed communication %.1f%%, at the end %u micro-step(s) a step\n",
        row.policy.c_str(), row.curve.back().micro_steps, row.reductions, row.seconds, exposed_percent(row),
        row.advised.back().advice.accumulation);
  }
}

Json json_of(const std::vector<gradwire::CodecSwitch>& switches) {
  Json json = Json::array();
  for (const gradwire::CodecSwitch& one : switches) {
    json.push_back(
        Json{{"step", one.step}, {"from", one.from}, {"to", one.to}, {"buckets", one.buckets}, {"reason", one.reason}});
  }
  return json;
}

Json json_of(const std::vector<RunResult::Advised>& advised) {
  Json json = Json::array();
  for (const auto& [micro_step, advice] : advised) {
    const bool finite = advice.noise_scale && std::isfinite(*advice.noise_scale);
    json.push_back(Json{{"micro_step", micro_step},
                        {"step", advice.step},
                        {"accumulation", advice.accumulation},
                        {"learning_rate_factor", advice.learning_rate_factor},
                        {"exposed_share", advice.exposed_share},
                        {"noise_scale", finite ? Json(*advice.noise_scale) : Json()},
                        {"reason", advice.reason}});
  }
  return json;
}

Json json_of(const std::vector<RunResult::Point>& curve) {
  Json json = Json::array();
  for (const RunResult::Point& point : curve) {
    json.push_back(Json{{"micro_steps", point.micro_steps},
                        {"reductions", point.reductions},
                        {"seconds", point.seconds},
                        {"exposed_seconds", point.exposed_seconds},
                        {"bytes_sent", point.bytes_sent},
                        {"held_out_loss", point.held_out_loss}});
  }
  return json;
}

}  // namespace

void ProgressPrinter::operator()(const Progress& now) {
  if (style_ == ProgressStyle::none) {
    return;
  }
  const bool last = now.step == now.steps;
  if (now.changed != nullptr) {
    const gradwire::BatchAdvice& advice = *now.changed;
    std::printf("%s%-8s accumulates %u micro-step(s) a step, learning rate x %.2f: %s\n",
                style_ == ProgressStyle::bar ? "\r" : "", name_.c_str(), advice.accumulation,
                advice.learning_rate_factor, advice.reason.c_str());
  }
  if (style_ == ProgressStyle::lines) {
    const int tenths = now.step / std::max(1, now.steps / 10);
    if (tenths == tenths_ && !last) {
      return;
    }
    tenths_ = tenths;
    std::printf("%-8s step %4d/%d  loss %.3f  %.0f ms/step  %.2f MB sent/step\n", name_.c_str(), now.step, now.steps,
                now.loss, now.ms_per_step, now.bytes_sent_per_step / kMega);
  } else {
    const int digits = static_cast<int>(std::to_string(now.steps).size());
    char state[128];  // of constant width, so that the bar's width is constant too
    const int length = std::snprintf(state, sizeof state, "%*d/%d  loss %.3f  %4.0f ms/step  %5.2f MB/step", digits,
                                     now.step, now.steps, now.loss, now.ms_per_step, now.bytes_sent_per_step / kMega);
    const int name = std::max(8, static_cast<int>(name_.size()));
    const int cells = std::clamp(kLineCells - name - length - 4, kFewestBarCells, kMostBarCells);
    const int full = now.step * cells / now.steps;
    std::printf("\r%-*s [%s%s] %s", name, name_.c_str(), std::string(static_cast<std::size_t>(full), '#').c_str(),
                std::string(static_cast<std::size_t>(cells - full), '.').c_str(), state);
    if (last) {
      std::printf("\n");
    }
  }
  std::fflush(stdout);
}

void print_introduction(const Text& text, const TrainingOptions& options, int world_size) {
  std::printf("char_lm: %d ranks, %d steps of %d x %d characters a rank, seed %llu\n", world_size, options.steps,
              options.batch, options.context, static_cast<unsigned long long>(options.seed));
  std::printf("text:    %zu characters of %zu files, %zu of them held out, %zu different\n", text.symbols.size(),
              text.files.size(), text.held_out().size(), text.vocabulary.size());
  if (!options.link.empty()) {
    std::printf("link:    emulated, %s out of each rank and into it; no real network is used\n", options.link.c_str());
  }
  std::fflush(stdout);
}

void print_table(const std::vector<RunResult>& rows, int world_size) {
  const RunResult& first = rows.front();
  std::printf("\n%.2f M parameters (%.1f%% in tensors of 64 KiB and more), %d ranks, transport %s\n",
              static_cast<double>(first.parameters) / kMega, 100 * first.large_share, world_size,
              first.transport.c_str());
  std::size_t width = 8;
  for (const RunResult& row : rows) {
    width = std::max(width, row.policy.size());
  }
  const int name = static_cast<int>(width);
  std::printf("%-*s %8s %8s %8s %6s %8s %8s %8s %8s\n", name, "", "training", "held-out", "MB sent", "", "", "comm.",
              "exposed", "seconds");
  std::printf("%-*s %8s %8s %8s %6s %8s %8s %8s %8s\n", name, "policy", "loss", "loss", "per step", "ratio", "ms/step",
              "alone ms", "comm. ms", "in all");
  for (const RunResult& row : rows) {
    std::printf("%-*s %8.4f %8.4f %8.3f %6.2f %8.1f %8.1f %8.1f %8.1f\n", name, row.policy.c_str(), row.train_loss,
                row.held_out_loss, row.bytes_sent_per_step / kMega, row.ratio, row.ms_per_step, row.communication_ms,
                row.exposed_comm_ms, row.seconds);
  }
  for (const RunResult& row : rows) {
    print_choices(row);
  }
  if (const RunResult* dense = find_dense(rows)) {
    for (const RunResult& row : rows) {
      if (&row == dense) {
        continue;
      }
      std::printf("%s against dense: held-out loss %+.2f%%, %.2f times fewer bytes, %.2f times the speed\n",
                  row.policy.c_str(), percent_over(row.held_out_loss, dense->held_out_loss),
                  dense->bytes_sent_per_step / row.bytes_sent_per_step, dense->seconds / row.seconds);
    }
  }
  std::fflush(stdout);
}

std::vector<PairedLoss> pair_losses(const std::vector<RunResult>& rows) {
  std::map<std::uint64_t, double> dense;
  std::vector<std::string> names;
  for (const RunResult& row : rows) {
    if (row.policy == "dense") {
      dense[row.seed] = row.held_out_loss;
    } else if (std::find(names.begin(), names.end(), row.policy) == names.end()) {
      names.push_back(row.policy);
    }
  }
  std::vector<PairedLoss> losses;
  for (const std::string& name : names) {
    std::vector<double> ratios;
    for (const RunResult& row : rows) {
      if (row.policy == name && dense.contains(row.seed)) {
        ratios.push_back(row.held_out_loss / dense[row.seed]);
      }
    }
    const auto count = static_cast<double>(ratios.size());
    PairedLoss loss{name, static_cast<int>(ratios.size()), 0, 0, 0};
    for (const double ratio : ratios) {
      loss.mean_ratio += ratio / count;
      loss.largest_ratio = std::max(loss.largest_ratio, ratio);
    }
    for (const double ratio : ratios) {
      loss.standard_error += (ratio - loss.mean_ratio) * (ratio - loss.mean_ratio);
    }
    loss.standard_error = ratios.size() > 1 ? std::sqrt(loss.standard_error / (count - 1) / count) : 0;
    losses.push_back(loss);
  }
  return losses;
}

void print_paired(const std::vector<PairedLoss>& losses) {
  for (const PairedLoss& loss : losses) {
    std::printf("%s over %d seeds: held-out loss %.4f of dense, standard error %.4f, at most %.4f\n",
                loss.policy.c_str(), loss.seeds, loss.mean_ratio, loss.standard_error, loss.largest_ratio);
  }
  std::fflush(stdout);
}

void write_json(const std::string& file, const std::vector<RunResult>& rows, const Text& text,
                const TrainingOptions& options, int world_size) {
  Json report{{"schema", "gradwire.char_lm.1"}, {"machine", describe_machine()}};
  report["run"] = Json{{"ranks", world_size},
                       {"steps", options.steps},
                       {"batch", options.batch},
                       {"context", options.context},
                       {"seed", options.seed},
                       {"learning_rate", options.learning_rate},
                       {"iid", options.iid},
                       {"link", options.link.empty() ? "none emulated" : "emulated " + options.link},
                       {"parameters", rows.front().parameters},
                       {"share_in_tensors_of_64KiB", rows.front().large_share},
                       {"characters", text.symbols.size()},
                       {"characters_held_out", text.held_out().size()}};
  report["rows"] = Json::array();
  for (const RunResult& row : rows) {
    report["rows"].push_back(Json{{"policy", row.policy},
                                  {"seed", row.seed},
                                  {"learning_rate", options.learning_rate},
                                  {"precondition", row.precondition},
                                  {"steps", options.steps},
                                  {"train_loss", row.train_loss},
                                  {"held_out_loss", row.held_out_loss},
                                  {"ratio", row.ratio},
                                  {"ratio_compressed", row.ratio_compressed},
                                  {"bytes_sent_per_step", row.bytes_sent_per_step},
                                  {"bytes_sent", row.bytes_sent},
                                  {"bits_per_element_and_hop", row.bits_per_element_and_hop},
                                  {"bits_per_element_and_hop_in_whole", row.bits_per_element_and_hop_in_whole},
                                  {"ms_per_step", row.ms_per_step},
                                  {"comm_alone_ms", row.communication_ms},
                                  {"exposed_comm_ms", row.exposed_comm_ms},
                                  {"measured_steps", row.measured_steps},
                                  {"reductions", row.reductions},
                                  {"seconds", row.seconds},
                                  {"codecs", row.codecs},
                                  {"switches", json_of(row.switches)},
                                  {"advice", json_of(row.advised)},
                                  {"curve", json_of(row.curve)},
                                  {"transport", row.transport}});
  }
  for (const PairedLoss& loss : pair_losses(rows)) {
    report["paired"].push_back(Json{{"policy", loss.policy},
                                    {"seeds", loss.seeds},
                                    {"held_out_loss_ratio", loss.mean_ratio},
                                    {"standard_error", loss.standard_error},
                                    {"largest_ratio", loss.largest_ratio}});
  }
  namespace fs = std::filesystem;
  const bool device = file.starts_with("/dev/") || (fs::exists(file) && !fs::is_regular_file(file));
  const std::string part =
      device ? file : file + ".part";  // so that a program that is interrupted leaves no incomplete file
  std::error_code failed;
  if (!device) {
    fs::remove(part, failed);
  }
  const std::string json = report.dump(2) + "\n";
  std::FILE* const out = std::fopen(part.c_str(), device ? "we" : "wxe");  // x: does not follow a link
  const bool written = out != nullptr && std::fwrite(json.data(), 1, json.size(), out) == json.size();
  const bool whole = out != nullptr && std::fclose(out) == 0 && written;
  failed.clear();
  if (whole && !device) {
    fs::rename(part, file, failed);
  }
  if (!whole || failed) {
    throw std::runtime_error("--json " + file + ": cannot be written; does its folder exist?");
  }
}

}  // namespace char_lm
