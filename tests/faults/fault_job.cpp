// A job of MPI processes, some of which end in a given way at a given time. Each rank that ends well prints a hash of
// what it holds; each rank that comes back from a change prints when.
//
//   mpirun --enable-recovery -np 4 fault_job STEPS POLICY [OPTION=VALUE ...] [RANK:KIND:STAGE:TIME:OPERATIONS ...]
//
// POLICY is the text of a policy. Options: checkpoints=DIRECTORY: the job goes on from there, and writes a checkpoint
// every 5 steps; node=2: two consecutive processes pretend to share a node; timeout=SECONDS of the session; joins=1:
// one process joins, for which the last steps wait; table=1: the session has a table. KIND: kill, abort, exit, stop
// (for 3 s), pause (for half a second), freeze (all ranks of the launcher for 3 s), cut (messages to and from the
// process are lost). The fault strikes OPERATIONS messages of its own after the process has reached this STAGE for the
// TIME-th time. The process is in the stage `loss` when it hears that another has ended.
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"
#include "tests/support/mortal.hpp"

namespace {

using gradwire::Sync;
using gradwire::test::Cut;
using gradwire::test::Life;

// Returns seconds of a clock that all processes of a host share.
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Fault {
  std::string kind, stage;
  int time = 1;
  std::int64_t operations = 0;
};

// The progress of a process, and the fault that strikes it.
class Script {
 public:
  explicit Script(gradwire::Processes::Id self) : cut_(std::make_shared<Cut>(std::set{self})) {
    life_->on_loss = [this] {
      changing_ = true;
      if (fault_ && fault_->stage == "loss") {
        strike_later();
      }
    };
  }
  void meet(Fault fault) { fault_ = std::move(fault); }

  /// `stage` must be a literal.
  void enter(const char* stage) {
    stage_ = stage;
    life_->note(nullptr);
    if (std::strcmp(stage, "told") == 0 || std::strcmp(stage, "between") == 0) {
      changing_ = false;
    }
    if (fault_ && fault_->stage == stage && ++times_ == fault_->time) {
      strike_later();
    }
  }
  [[nodiscard]] const std::shared_ptr<Life>& life() const { return life_; }
  [[nodiscard]] const std::shared_ptr<Cut>& cut() const { return cut_; }

 private:
  void strike_later() { fault_->operations == 0 ? strike() : life_->end_after(fault_->operations); }

  void strike() {
    if (struck_.exchange(true)) {
      return;
    }
    const char* seen = life_->last_seen();
    std::printf("dies %.4f in %s%s%s\n", now(), changing_ ? "change" : stage_.load(), seen == nullptr ? "" : ", ",
                seen == nullptr ? "" : seen);
    std::fflush(stdout);
    if (fault_->kind == "kill") {
      std::raise(SIGKILL);
    } else if (fault_->kind == "abort") {
      std::abort();
    } else if (fault_->kind == "exit") {
      std::_Exit(9);
    } else if (fault_->kind == "cut") {
      cut_->happen();
    } else if (fault_->kind == "freeze") {
      const std::string parent = std::to_string(getppid());
      // The shell is a child of this process, and is not stopped with the launcher's.
      const std::string freezes =
          "(all=$(pgrep -P " + parent + "); kill -STOP $all; sleep 3; kill -CONT $all) " + ">/dev/null 2>&1 &";
      static_cast<void>(std::system(freezes.c_str()));
    } else {
      const std::string seconds = fault_->kind == "stop" ? "3" : "0.5";
      const std::string wakes =
          "(sleep " + seconds + "; kill -CONT " + std::to_string(getpid()) + ") >/dev/null 2>&1 &";
      if (std::system(wakes.c_str()) == 0) {
        std::raise(SIGSTOP);
      }
    }
  }

  std::optional<Fault> fault_;
  int times_ = 0;
  std::atomic<bool> struck_ = false;
  std::atomic<bool> changing_ = false;  // another process has ended, and this one knows no new world
  std::atomic<const char*> stage_ = "start";
  const std::shared_ptr<Life> life_ = std::make_shared<Life>(Life::kForEver, [this] { strike(); });
  const std::shared_ptr<Cut> cut_;
};

struct Job {
  std::uint64_t steps = 0;
  gradwire::Policy policy;
  std::map<std::string, std::string> options;
  std::map<gradwire::Processes::Id, Fault> faults;

  [[nodiscard]] std::string option(const std::string& name) const {
    const auto found = options.find(name);
    return found == options.end() ? "" : found->second;
  }
};

Job read_job(int argc, char** argv) {
  Job job{.steps = std::stoull(argv[1]), .policy = gradwire::Policy::parse(argv[2]), .options = {}, .faults = {}};
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    if (const std::size_t equals = word.find('='); equals != std::string::npos) {
      job.options[word.substr(0, equals)] = word.substr(equals + 1);
      continue;
    }
    std::istringstream text(word);
    std::string rank, time;
    Fault fault;
    std::getline(std::getline(std::getline(text, rank, ':'), fault.kind, ':'), fault.stage, ':');
    std::getline(text, time, ':') >> fault.operations;
    fault.time = std::stoi(time);
    job.faults[static_cast<gradwire::Processes::Id>(std::stoul(rank))] = fault;
  }
  return job;
}

std::uint64_t hash_of(const std::vector<float>& values) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const float value : values) {
    std::uint32_t bits = 0;
    static_assert(sizeof(bits) == sizeof(value));
    std::memcpy(&bits, &value, sizeof(bits));
    hash = (hash ^ bits) * 0x100000001b3;
  }
  return hash;
}

class Training {
 public:
  Training(const std::shared_ptr<gradwire::Processes>& processes, const Job& job, Script& script)
      : job_(job),
        script_(script),
        self_(processes->self()),
        others_come_(processes->open() || job.policy.elastic.value().spares > 0),
        session_(processes, job.policy, {.timeout = std::chrono::seconds(seconds_of(job.option("timeout")))}) {
    id_ = local_ ? session_.add("vector", whole(gradient_), whole(value_)) : session_.add("vector", whole(gradient_));
    if (!job.option("table").empty()) {  // enough copies that any two ranks may end
      table_ = session_.add_table({.name = "rows", .rows = kRows, .width = kWidth, .copies = 3});
    }
    session_.on_world_change([this](const gradwire::WorldChange& change) {
      script_.enter("told");
      for (const std::string& name : change.lost_names) {
        lost_ += " [" + name + "]";
      }
      joined_ += change.joined.size();
      back_ = false;
    });
  }

  void run() {
    if (!begin()) {
      std::printf("unused %u\n", self_);
      return;
    }
    while (session_.step() < job_.steps) {
      step();
    }
    synchronise();
    session_.wait_for_checkpoint();
    script_.enter("end");
    std::printf("survivor %u world %d hash %016llx restored %llu joined %zu lost%s\n", self_, session_.world_size(),
                static_cast<unsigned long long>(hash_of(value_) ^ (table_ ? hash_of(rows_) : 0)),
                static_cast<unsigned long long>(restored_), joined_, lost_.c_str());
    std::fflush(stdout);
  }

 private:
  static constexpr std::size_t kParameters = 50000;
  static constexpr std::uint64_t kRows = 500;
  static constexpr std::uint32_t kWidth = 8;
  static int seconds_of(const std::string& text) { return text.empty() ? 20 : std::stoi(text); }
  static gradwire::View whole(std::vector<float>& values) { return gradwire::view(values.data(), values.size()); }

  // Returns false on a spare that was not needed.
  bool begin() {
    script_.enter("share");
    for (bool done = false; !done;) {
      try {
        if (others_come_) {
          if (!session_.share(whole(value_))) {
            return false;
          }
        } else {
          session_.broadcast(whole(value_));
        }
        done = true;
      } catch (const gradwire::Error& error) {  // rank 0 has ended, so values are made again
        if (error.code() != gradwire::ErrorCode::invalid_argument) {
          throw;
        }
        value_.assign(kParameters, 0.0F);
      }
    }
    if (!checkpoints_.empty()) {
      script_.enter("restore");
      restored_ = session_.restore(checkpoints_, std::vector{whole(value_)});
    }
    return true;
  }

  void synchronise() {
    if (local_) {
      script_.enter("sync");
      session_.sync_parameters();
    }
  }

  void step() {
    const std::uint64_t number = session_.step();
    const auto step = static_cast<float>(number);
    if (others_come_) {  // gives newcomers time to report before the job ends
      const bool is_late = awaited_ && joined_ == 0 && number + 10 > job_.steps;
      std::this_thread::sleep_for(std::chrono::milliseconds(is_late ? 300 : 10));
    }
    for (std::size_t i = 0; i < kParameters; ++i) {
      gradient_[i] =
          value_[i] - static_cast<float>(i % 17) + static_cast<float>((i * 31 + self_ * 7) % 11) + 0.1F * step;
    }
    if (late_ && number + 1 == job_.steps) {
      session_.flush();
    }
    if (table_ && !use_table(number)) {
      return;
    }
    script_.enter("ready");
    session_.ready(id_);
    script_.enter("finish");
    if (session_.finish().repeat) {
      return;
    }
    if (!back_) {
      std::printf("back %.4f\n", now());
      std::fflush(stdout);
      back_ = true;
    }
    script_.enter("between");
    for (std::size_t i = 0; i < kParameters; ++i) {
      value_[i] -= 0.1F * gradient_[i];
    }
    if (number % 5 == 4) {
      synchronise();
      if (!checkpoints_.empty()) {
        script_.enter("checkpoint");
        const std::vector<gradwire::ConstView> saved{whole(value_)};
        session_.checkpoint(checkpoints_, saved);
        script_.enter("written");  // a thread writes it
      }
    }
  }

  // Pulls and pushes some rows of its own in each step, and all rows in the last one, which must be equal on all ranks.
  // Returns false if the world has changed.
  bool use_table(std::uint64_t number) {
    script_.enter("pull");
    std::vector<std::uint64_t> ids(number + 1 == job_.steps ? kRows : 40);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = ids.size() == kRows ? i : (11 * self_ + 17 * number + i * i) % kRows;
    }
    rows_.resize(ids.size() * kWidth);
    if (!session_.pull(*table_, ids, rows_)) {
      return false;
    }
    std::vector<float> gradients(rows_.size());
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      gradients[i] = rows_[i] - static_cast<float>((ids[i / kWidth] + self_) % 13);
    }
    session_.push(*table_, ids, gradients);
    return true;
  }

  const Job& job_;
  Script& script_;
  const gradwire::Processes::Id self_;
  const std::string checkpoints_ = job_.option("checkpoints");
  const bool local_ = job_.policy.defaults.sync.mode == Sync::Mode::every;
  const bool late_ = job_.policy.defaults.sync.mode == Sync::Mode::async;
  const bool others_come_;
  const bool awaited_ = !job_.option("joins").empty();
  std::vector<float> value_ = std::vector<float>(kParameters), gradient_ = value_;
  std::string lost_;
  std::size_t joined_ = 0;
  std::uint64_t restored_ = 0;
  bool back_ = true;
  gradwire::Session session_;
  gradwire::TensorId id_{};
  std::optional<gradwire::TableId> table_ = {};
  std::vector<float> rows_ = {};  // rows read by the last step
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: fault_job STEPS POLICY [OPTION=VALUE ...] [RANK:KIND:STAGE:TIME:OPERATIONS ...]\n");
    return 2;
  }
  const Job job = read_job(argc, argv);
  gradwire::mpi::elastic_main(argc, argv, [&](const std::shared_ptr<gradwire::Processes>& processes) {
    Script script(processes->self());
    if (const auto fault = job.faults.find(processes->self()); fault != job.faults.end()) {
      script.meet(fault->second);
    }
    const std::string node = job.option("node");
    script.enter("start");
    Training(std::make_shared<gradwire::test::MortalProcesses>(processes, script.life(), script.cut(),
                                                               node.empty() ? 0 : std::stoul(node)),
             job, script)
        .run();
  });
}
