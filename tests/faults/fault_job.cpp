// A job of MPI processes that are to end in a given way at a given moment: after so many of their own messages, of
// steps or about the world. Each rank that ends well tells what it holds; each that comes back from a change tells
// when.
//
//   mpirun --enable-recovery -np 4 fault_job STEPS CODEC [RANK:KIND:OPERATION ...]     KIND: kill, abort, exit, stop
//
// CODEC may also be `every N`: local steps. FAULT_SPARES=K: the last K processes are spares.
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"
#include "tests/support/mortal.hpp"

namespace {

using gradwire::test::Life;

// Of all processes of a host.
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void end_by(const std::string& kind) {
  std::printf("dies %.4f\n", now());
  std::fflush(stdout);
  if (kind == "kill") {
    std::raise(SIGKILL);
  } else if (kind == "abort") {
    std::abort();
  } else if (kind == "exit") {
    std::_Exit(9);
  } else {  // stopped for 3 s
    const std::string command = "(sleep 3; kill -CONT " + std::to_string(getpid()) + ") >/dev/null 2>&1 &";
    if (std::system(command.c_str()) == 0) {
      std::raise(SIGSTOP);
    }
  }
}

std::shared_ptr<Life> life_of(gradwire::Processes::Id self, char** faults, char** end) {
  for (; faults != end; ++faults) {
    std::istringstream text(*faults);
    std::string rank, kind, operation;
    std::getline(std::getline(std::getline(text, rank, ':'), kind, ':'), operation);
    if (rank == std::to_string(self)) {
      return std::make_shared<Life>(std::stoll(operation), [kind] { end_by(kind); });
    }
  }
  return std::make_shared<Life>();
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

void train(const std::shared_ptr<gradwire::Processes>& processes, std::uint64_t steps, const std::string& codec) {
  constexpr std::size_t kParameters = 50000;
  const gradwire::Processes::Id self = processes->self();
  std::vector<float> value(kParameters), gradient(kParameters);
  const bool local = codec.starts_with("every ");
  gradwire::Policy policy = gradwire::Policy::uniform(local ? "exact" : codec);
  if (local) {
    policy.defaults.sync = {.mode = gradwire::Sync::Mode::every,
                            .every = static_cast<std::uint32_t>(std::stoul(codec.substr(6)))};
  }
  const char* spares = std::getenv("FAULT_SPARES");
  policy.elastic =
      gradwire::Policy::Elastic{.suspect = std::chrono::milliseconds(2000),
                                .min_ranks = 1,
                                .spares = static_cast<std::uint32_t>(spares == nullptr ? 0 : std::atoi(spares))};
  gradwire::Session session(processes, policy, {.timeout = std::chrono::seconds(20)});
  const gradwire::View view = gradwire::view(gradient.data(), gradient.size());
  const gradwire::TensorId id =
      local ? session.add("vector", view, gradwire::view(value.data(), value.size())) : session.add("vector", view);
  std::string lost;
  bool back = true;
  session.on_world_change([&](const gradwire::WorldChange& change) {
    for (const std::string& name : change.lost_names) {
      lost += " [" + name + "]";
    }
    back = false;
  });
  if (spares != nullptr && !session.share(gradwire::view(value.data(), value.size()))) {
    std::printf("unused %u\n", self);
    return;
  }
  while (session.step() < steps) {
    const auto step = static_cast<float>(session.step());
    if (spares != nullptr) {  // they are heard before it ends
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    for (std::size_t i = 0; i < kParameters; ++i) {
      gradient[i] = value[i] - static_cast<float>(i % 17) + static_cast<float>((i * 31 + self * 7) % 11) + 0.1F * step;
    }
    session.ready(id);
    if (session.finish().repeat) {
      continue;
    }
    if (!back) {
      std::printf("back %.4f\n", now());
      back = true;
    }
    for (std::size_t i = 0; i < kParameters; ++i) {
      value[i] -= 0.1F * gradient[i];
    }
  }
  session.sync_parameters();
  std::printf("survivor %u world %d hash %016llx lost%s\n", self, session.world_size(),
              static_cast<unsigned long long>(hash_of(value)), lost.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: fault_job STEPS CODEC [RANK:KIND:OPERATION ...]\n");
    return 2;
  }
  gradwire::mpi::elastic_main(argc, argv, [&](const std::shared_ptr<gradwire::Processes>& processes) {
    const auto life = life_of(processes->self(), argv + 3, argv + argc);
    train(std::make_shared<gradwire::test::MortalProcesses>(processes, life), std::stoull(argv[1]), argv[2]);
  });
}
