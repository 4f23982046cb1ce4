// Two ranks as threads sum two vectors with int8 on the wire.
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "gradwire/gradwire.hpp"

int main() {
  const auto world = gradwire::make_inproc_world(2);
  std::vector<std::vector<float>> gradients = {std::vector<float>(100000, 1.0F), std::vector<float>(100000, 2.0F)};
  double ratio = 0;
  const auto work = [&](int rank) {
    gradwire::Communicator communicator(world[rank]);
    const auto statistics = communicator.all_reduce(gradwire::view(gradients[rank].data(), gradients[rank].size()));
    if (rank == 0) {
      ratio = statistics.ratio();
    }
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  const bool good = gradients[0] == gradients[1] && std::abs(gradients[0][99999] - 3.0F) < 0.05F && ratio > 3.5;
  std::printf("gradwire %d.%d.%d: 1 + 2 = %.3f, ratio %.2f: %s\n", gradwire::kVersionMajor, gradwire::kVersionMinor,
              gradwire::kVersionPatch, static_cast<double>(gradients[0][99999]), ratio, good ? "good" : "WRONG");
  return good ? 0 : 1;
}
