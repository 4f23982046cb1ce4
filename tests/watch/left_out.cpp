// Runs a job of two ranks that are threads: a call of a communicator, then steps of a session. It is built twice, once
// like any program and once with the one line that leaves the library `watch` out.
#ifdef GRADWIRE_LEAVES_WATCH_OUT
#include "gradwire/without_watch.hpp"
#endif

#include <cstdio>
#include <thread>
#include <vector>

#include "gradwire/gradwire.hpp"

int main() {
  const auto world = gradwire::make_inproc_world(2);
  std::vector<float> results(2);
  const auto work = [&](std::size_t rank) {
    std::vector<float> sum(64, 1);
    gradwire::Communicator(world[rank]).all_reduce(gradwire::view(sum.data(), sum.size()));
    std::vector<float> gradient(256);
    gradwire::Session session(world[rank], gradwire::Policy{});
    const gradwire::TensorId id = session.add("gradient", gradwire::view(gradient.data(), gradient.size()));
    for (int step = 0; step < 3; ++step) {
      gradient.assign(gradient.size(), static_cast<float>(2 * rank + 1));
      session.ready(id);
      session.finish();
    }
    results[rank] = sum[0] + gradient[0];
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  std::printf("results %.1f %.1f\n", static_cast<double>(results[0]), static_cast<double>(results[1]));
  return 0;
}
