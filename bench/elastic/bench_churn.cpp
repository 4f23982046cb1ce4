// bench_churn measures how much of its work a job keeps when one rank is killed in each period. A rank ends itself by
// SIGKILL in the middle of a step; a spare takes its place, a new process joins later, or the others go on alone.
//
//   mpirun --enable-recovery -np 10 bench_churn run spares.json --spares 2 --seconds 60 --period 20
//   gradwire run --let-join FILE -- mpirun --enable-recovery -np 8 bench_churn run joins.json --join-after 2
//   bench_churn report calm.json spares.json alone.json       the first file is of a run without deaths (--period 0)
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/support/mpi_program.hpp"
#include "bench/support/samples.hpp"
#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"

namespace gradwire::bench {
namespace {

constexpr std::size_t kParameters = 1 << 18;
constexpr float kRate = 0.5F;

struct Options {
  std::string mode;
  std::vector<std::string> files;
  std::string codec = "int4";
  int spares = 0;
  double join_after = -1;
  double seconds = 60;
  double period = 20;
  double computing_ms = 50;  // a step of a real model on an accelerator of its own
  ReportFiles written;       // report: where the table goes
};

// Starts another process like this one, which joins the job `seconds` later. It inherits nothing of this process's MPI
// job, and its output goes to the file `log`.
void send_for_another(char** argv, double seconds, const std::string& log) {
  const pid_t child = fork();
  if (child != 0) {
    return;
  }
  setsid();
  const int nowhere = open("/dev/null", O_RDONLY),
            said = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0644);
  for (int fd = 0; fd < 1024; ++fd) {
    fd <= 2 ? dup2(fd == 0 ? nowhere : said, fd) : close(fd);
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  if (const char* file = std::getenv("GRADWIRE_LET_JOIN")) {  // unset if this process has joined too
    setenv("GRADWIRE_JOIN", file, 1);
    unsetenv("GRADWIRE_LET_JOIN");
  }
  execv("/proc/self/exe", argv);
  _exit(1);
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// A quadratic that is a thousand times as steep in some directions as in others, so that its loss keeps falling. Each
// rank sees noise of its own.
class Problem {
 public:
  explicit Problem(std::uint32_t who) : own_(1000 + who) {
    std::mt19937 same(1);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> exponent(-3, 0);
    for (std::size_t i = 0; i < kParameters; ++i) {
      wanted_[i] = normal(same);
      curvature_[i] = std::pow(10.0F, exponent(same));
    }
  }

  void gradient(const std::vector<float>& value, std::vector<float>& gradient) {
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < kParameters; ++i) {
      gradient[i] = curvature_[i] * (value[i] - wanted_[i]) + 0.01F * normal(own_);
    }
  }
  [[nodiscard]] double loss(const std::vector<float>& value) const {
    double sum = 0;
    for (std::size_t i = 0; i < kParameters; ++i) {
      sum += curvature_[i] * std::pow(static_cast<double>(value[i]) - wanted_[i], 2) / 2 / kParameters;
    }
    return sum;
  }

 private:
  std::mt19937 own_;
  std::vector<float> wanted_ = std::vector<float>(kParameters), curvature_ = wanted_;
};

// The work of one rank. It shares the state that is equal on all ranks, so that a spare can go on with it.
class Worker {
 public:
  Worker(const std::shared_ptr<Processes>& processes, const Options& options, char** argv)
      : options_(options),
        argv_(argv),
        problem_(processes->self()),
        session_(processes, policy(options)),
        gradient_id_(session_.add("vector", view(gradient_.data(), gradient_.size()))),
        over_id_(session_.add("over", view(&over_, 1))) {
    session_.on_world_change([this](const WorldChange& change) { changes_.push_back(change.seconds); });
  }

  /// Returns false on a spare that was not needed.
  bool run() {
    if (!session_.share(std::vector<View>{view(value_.data(), value_.size()), view(&samples_, 1), view(&begun_, 1)})) {
      return false;
    }
    periods_ = periods();
    while (over_ == 0) {
      step();
    }
    return true;
  }

  [[nodiscard]] int rank() const { return session_.rank(); }
  [[nodiscard]] Json report() const {
    Json report = make_report("gradwire.bench_churn.1");
    report["codec"] = options_.codec;
    report["spares"] = options_.spares;
    report["join_after_seconds"] = number_or_null(options_.join_after < 0 ? NAN : options_.join_after);
    report["period_seconds"] = options_.period;
    report["seconds"] = now() - begun_;
    report["ranks"] = session_.world_size();
    report["samples"] = samples_;
    report["change_seconds"] = changes_;
    report["curve"] = curve_;
    return report;
  }

 private:
  static Policy policy(const Options& options) {
    Policy policy = Policy::uniform(options.codec);
    policy.elastic = Policy::Elastic{.spares = static_cast<std::uint32_t>(options.spares)};
    Policy::Rule exact;
    exact.match.glob = "over";
    exact.policy.codec = CodecSpec::parse("exact");
    policy.rules.push_back(exact);
    return policy;
  }
  [[nodiscard]] int periods() const {
    return options_.period > 0 ? static_cast<int>((now() - begun_) / options_.period) : 0;
  }

  void step() {
    problem_.gradient(value_, gradient_);
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options_.computing_ms));
    over_ = now() - begun_ >= options_.seconds ? 1 : 0;
    session_.ready(gradient_id_);
    if (periods() > std::exchange(periods_, periods())) {
      std::mt19937 chance(static_cast<unsigned>(periods_));
      if (static_cast<int>(chance() % static_cast<unsigned>(session_.world_size())) == session_.rank()) {
        if (options_.join_after >= 0) {
          send_for_another(argv_, options_.join_after, options_.files.front() + ".log");
        }
        std::raise(SIGKILL);
      }
    }
    session_.ready(over_id_);
    if (session_.finish().repeat) {
      over_ = 0;
      return;
    }
    for (std::size_t i = 0; i < kParameters; ++i) {
      value_[i] -= kRate * gradient_[i];
    }
    samples_ += session_.world_size();
    if (session_.step() % 20 == 0) {
      curve_.emplace_back(samples_, problem_.loss(value_));
    }
  }

  const Options& options_;
  char** argv_;
  Problem problem_;
  std::vector<float> value_ = std::vector<float>(kParameters), gradient_ = value_;
  float over_ = 0;
  double samples_ = 0, begun_ = now();
  int periods_ = 0;
  std::vector<double> changes_;
  std::vector<std::pair<double, double>> curve_;
  Session session_;
  TensorId gradient_id_, over_id_;
};

// Returns the loss at `samples`, interpolated linearly between the points of a curve; NaN outside of it.
double loss_at(const Json& curve, double samples) {
  for (std::size_t i = 1; i < curve.size(); ++i) {
    const double from = curve[i - 1][0], to = curve[i][0];
    if (from <= samples && samples <= to) {
      const double part = (samples - from) / (to - from);
      return (1 - part) * curve[i - 1][1].get<double>() + part * curve[i][1].get<double>();
    }
  }
  return NAN;
}

int report(const Options& options) {
  TextTable table({"spares", "another joins after s", "a death each s", "deaths", "s", "samples/s", "% of calm",
                   "ms a change, median", "worst", "at samples", "loss", "of calm"});
  Json all = make_report("gradwire.bench_churn_report.1"), calm;
  for (const std::string& file : options.files) {
    std::ifstream in(file);
    if (!in) {
      throw std::runtime_error(file + ": cannot read it");
    }
    const Json run = Json::parse(in);
    const double seconds = run.at("seconds"), samples = run.at("samples"), period = run.at("period_seconds");
    calm = calm.is_null() ? run : calm;
    const double rate = samples / seconds;
    const double goodput = 100 * rate / (calm.at("samples").get<double>() / calm.at("seconds").get<double>());
    auto changes = run.at("change_seconds").get<std::vector<double>>();
    const Json& curve = run.at("curve");
    const Json& calm_curve = calm.at("curve");
    const double both = std::min(curve.back()[0].get<double>(), calm_curve.back()[0].get<double>());  // both reach this
    const double loss = loss_at(curve, both), of_calm = loss / loss_at(calm_curve, both);
    const Json after = run.value("join_after_seconds", Json());
    table.add({fixed(run.at("spares"), 0), after.is_null() ? "-" : fixed(after, 0), period > 0 ? fixed(period, 0) : "-",
               fixed(std::floor(period > 0 ? seconds / period : 0), 0), fixed(seconds, 0), fixed(rate, 1),
               fixed(goodput, 1), fixed(changes.empty() ? NAN : 1e3 * median(changes), 0),
               fixed(changes.empty() ? NAN : 1e3 * *std::max_element(changes.begin(), changes.end()), 0),
               fixed(both, 0), scientific(loss), fixed(of_calm, 4)});
    all["rows"].push_back({{"spares", run.at("spares")},
                           {"join_after_seconds", after},
                           {"samples_per_second", rate},
                           {"percent_of_calm", goodput},
                           {"loss_of_calm", number_or_null(of_calm)}});
  }
  const std::string head =
      "A job whose ranks kill themselves, one each period, in the middle of a step. Changes: as the rank that is the "
      "lowest at the end saw them, from the first sign of a death until the next world was there. Losses: after as "
      "many "
      "samples as this run and the calm one both have.";
  options.written.tell(head, table, all);
  return 0;
}

Options parse(int argc, char** argv) {
  Options options;
  CommandLine line("How much of its work a job keeps whose ranks are killed, one each period.");
  line.option("mode", options.mode, "run (under mpirun) or report").one_of({"run", "report"}).required();
  line.option("files", options.files, "run: its report; report: reports of runs, the one without deaths first")
      .required();
  line.option("--codec", options.codec, "How gradients travel");
  line.option("--spares", options.spares, "The last so many processes wait").range(0, 1000);
  line.option("--join-after", options.join_after,
              "Seconds after a death until a new process joins; needs `gradwire run --let-join`; -1: none does")
      .range(-1.0, 1e6);
  line.option("--seconds", options.seconds, "Of the run").range(1.0, 1e6);
  line.option("--period", options.period, "Seconds between two deaths; 0: nobody dies").range(0.0, 1e6);
  line.option("--computing", options.computing_ms, "Milliseconds of a step in which nothing is sent").range(0.0, 1e6);
  options.written.add_to(line);
  line.parse(argc, argv);
  return options;
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  using namespace gradwire::bench;  // NOLINT(google-build-using-namespace)
  Options options;
  const int status = program("bench_churn", [&] {
    options = parse(argc, argv);
    return options.mode == "report" ? report(options) : 0;
  });
  if (status != 0 || options.mode != "run") {
    return status;
  }
  if (options.join_after >= 0 && std::getenv("GRADWIRE_LET_JOIN") == nullptr &&
      std::getenv("GRADWIRE_JOIN") == nullptr) {
    std::fprintf(stderr, "bench_churn: nobody can join: start it by gradwire run --let-join FILE -- mpirun ...\n");
    return 1;
  }
  gradwire::mpi::elastic_main(argc, argv, [&](const auto& processes) {
    Worker worker(processes, options, argv);
    if (worker.run() && worker.rank() == 0) {
      write_report(options.files.front(), worker.report());
    }
  });
}
