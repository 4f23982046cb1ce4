// A job that goes on when ranks end, and whose processes print what they hold: `elastic_job STEPS [OPTION=VALUE ...]`.
// ms=N: a step computes for N ms; min_ranks=N, suspect=MILLISECONDS, replicate=N, spares=N and trust_resets=1 are as in
// [elastic]; elements=N is the size of the one tensor, at int4; die=NUMBER@STEP: that process ends by SIGKILL in that
// step; exit=STATUS: the process leaves the loop by exit(STATUS) halfway.
#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/mpi.hpp"

namespace {

std::map<std::string, std::string> options_of(int argc, char** argv) {
  std::map<std::string, std::string> options;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    options[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
  }
  return options;
}

long entries(const char* folder) {
  long count = -2;  // excludes "." and ".."
  if (DIR* opened = ::opendir(folder)) {
    while (::readdir(opened) != nullptr) {  // NOLINT(concurrency-mt-unsafe)
      ++count;
    }
    ::closedir(opened);
  }
  return count;
}

// This is FNV-1a.
std::uint64_t hash_of(const std::vector<float>& values) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const float value : values) {
    hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3U;
  }
  return hash;
}

void tell_of_what_is_held(const char* what, const gradwire::Session& session) {
  const auto held = ::mallinfo2();
  std::printf("%s process %d rank %d of %d: %zu KiB, %ld descriptors, %ld threads\n", what, ::getpid(), session.rank(),
              session.world_size(), (held.uordblks + held.hblkhd) >> 10U, entries("/proc/self/fd"),
              entries("/proc/self/task"));
  std::fflush(stdout);
}

void train(const std::shared_ptr<gradwire::Processes>& processes, std::uint64_t steps,
           std::map<std::string, std::string> options) {
  const auto number = [&](const char* name, unsigned otherwise) {
    return options.contains(name) ? static_cast<unsigned>(std::stoul(options[name])) : otherwise;
  };
  std::vector<float> value(number("elements", 1 << 14), 1.0F);
  std::vector<float> gradient(value.size());
  gradwire::Policy policy = gradwire::Policy::uniform("int4");
  policy.elastic = gradwire::Policy::Elastic{.suspect = std::chrono::milliseconds(number("suspect", 5000)),
                                             .min_ranks = number("min_ranks", 1),
                                             .replicate = number("replicate", 0),
                                             .spares = number("spares", 0),
                                             .trust_resets = number("trust_resets", 0) != 0};
  gradwire::Session session(processes, policy);
  const gradwire::TensorId id = session.add("vector", gradwire::view(gradient.data(), gradient.size()));
  session.on_world_change([&](const gradwire::WorldChange&) { tell_of_what_is_held("changed", session); });
  if (!session.share(gradwire::view(value.data(), value.size()))) {
    std::printf("not needed\n");
    return;
  }
  tell_of_what_is_held("began", session);
  while (session.step() < steps) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      gradient[i] = value[i] - 0.5F + static_cast<float>(i % 7) * 0.01F;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(number("ms", 5)));
    if (options["die"] == std::to_string(processes->self()) + "@" + std::to_string(session.step())) {
      std::raise(SIGKILL);
    }
    if (options.contains("exit") && session.step() == steps / 2) {
      std::exit(static_cast<int>(number("exit", 0)));  // NOLINT(concurrency-mt-unsafe)
    }
    session.ready(id);
    if (session.finish().repeat) {
      continue;
    }
    for (std::size_t i = 0; i < value.size(); ++i) {
      value[i] -= 0.01F * gradient[i];
    }
  }
  session.confirm();
  tell_of_what_is_held("ended", session);
  std::printf("model %016llx of process %d after %llu steps\n", static_cast<unsigned long long>(hash_of(value)),
              ::getpid(), static_cast<unsigned long long>(session.step()));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t steps = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100;
  const auto options = options_of(argc, argv);
  gradwire::mpi::elastic_main(argc, argv, [&](const auto& processes) { train(processes, steps, options); });
}
