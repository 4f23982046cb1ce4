// A job of two ranks that are threads, which writes every kind of file that a job without MPI can write, below the
// folder that its first argument names. Other arguments are for the command line in its histories.
#include <array>
#include <cstdint>
#include <filesystem>
#include <thread>
#include <vector>

#include "gradwire/gradwire.hpp"
#include "gradwire/table.hpp"

int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 1 ? argv[1] : ".";
  const auto world = gradwire::make_inproc_world(2);
  const auto tables = gradwire::make_inproc_world(2);
  const auto work = [&](std::size_t rank) {
    std::vector<float> gradient(20'000, 1.0F);
    {
      gradwire::Session session(world[rank], gradwire::Policy::uniform("int8"));
      const auto id = session.add("gradient", gradwire::view(gradient.data(), gradient.size()));
      const auto rows = session.add_table({.name = "rows", .rows = 16, .width = 2, .initial_scale = 1});
      if (rank == 0) {
        session.record_gradients(folder / "gradients", 2);
      }
      for (int step = 0; step < 3; ++step) {
        std::array<float, 4> values{};
        const std::array<std::uint64_t, 2> ids{1, 2};
        while (!session.pull(rows, ids, values)) {
        }
        session.push(rows, ids, values);
        session.ready(id);
        session.finish();
        session.save(folder / "state");
      }
      const gradwire::ConstView parameters = gradwire::view(gradient.data(), gradient.size());
      session.checkpoint(folder / "checkpoints", {&parameters, 1});
      session.wait_for_checkpoint();
    }
    gradwire::Table table(tables[rank], {.name = "users", .rows = 16, .width = 2});
    table.save(folder / "table");
    table.save(folder / "table");
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  return 0;
}
