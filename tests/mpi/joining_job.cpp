// A job that waits until PROCESSES are there, including joiners, makes a world of all, adds up the number that each of
// them knows, and ends: `joining_job PROCESSES [VICTIM]`. The victim kills itself once it has seen them; then the
// others make another world.
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/mpi.hpp"

namespace {

using gradwire::Processes;
constexpr std::chrono::seconds kTimeout{30};

class Job {
 public:
  explicit Job(std::shared_ptr<Processes> processes) : processes_(std::move(processes)) {
    listener_ = std::thread([this] {
      while (!over_) {
        for (const Processes::Heard& one : processes_->hear(std::chrono::milliseconds(50))) {
          const std::lock_guard lock(mutex_);
          if (one.ended) {
            ended_.insert(one.from);
          }
        }
      }
    });
  }
  ~Job() {
    over_ = true;
    listener_.join();
    processes_->end();
  }

  /// Waits until at least `count` processes are there, and returns them.
  std::vector<Processes::Id> wait_for(std::size_t count) {
    const auto until = std::chrono::steady_clock::now() + kTimeout;
    for (;;) {
      std::vector<Processes::Id> there = processes_->all();
      const auto newcomers = processes_->newcomers();
      there.insert(there.end(), newcomers.begin(), newcomers.end());
      if (processes_->joined()) {
        there.push_back(processes_->self());
      }
      std::ranges::sort(there);
      {
        const std::lock_guard lock(mutex_);
        std::erase_if(there, [this](Processes::Id id) { return ended_.contains(id); });
      }
      if (there.size() == count) {
        return there;
      }
      if (std::chrono::steady_clock::now() > until) {
        throw gradwire::Error(gradwire::ErrorCode::timeout, "there are " + std::to_string(there.size()) + " processes");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  void make_world(const std::vector<Processes::Id>& members, std::uint32_t epoch) {
    gradwire::Communicator communicator(processes_->connect(members, epoch, kTimeout), {.timeout = kTimeout});
    std::vector<float> sum(100000, static_cast<float>(processes_->self() + 1));
    communicator.all_reduce(gradwire::view(sum.data(), sum.size()));
    std::printf("%s: a world of %d, sum %.0f\n", processes_->describe(processes_->self()).c_str(),
                communicator.world_size(), static_cast<double>(sum.back()));
    std::fflush(stdout);
  }

 private:
  std::shared_ptr<Processes> processes_;
  std::mutex mutex_;
  std::set<Processes::Id> ended_;
  std::atomic<bool> over_ = false;
  std::thread listener_;
};

}  // namespace

int main(int argc, char** argv) {
  gradwire::mpi::elastic_main(argc, argv, [&](const std::shared_ptr<Processes>& processes) {
    const std::size_t count = std::strtoul(argv[1], nullptr, 10);
    Job job(processes);
    job.make_world(job.wait_for(count), 1);
    if (argc > 2) {
      if (processes->self() == std::strtoul(argv[2], nullptr, 10)) {
        std::raise(SIGKILL);
      }
      processes->note_loss();
      job.make_world(job.wait_for(count - 1), 2);
    }
  });
}
