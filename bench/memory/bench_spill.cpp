// Residuals of which two thirds lie in a file: traffic beside what fio reads and writes of the same disk with the same
// size of requests, the time of a step beside a session with all residuals in memory, and the peak of memory. Sessions
// run in processes of their own, in turns, and medians count.
//   bench_spill [--folder .] [--rounds 5] [--steps 20] [--compute-ms 100] [--json FILE] [--markdown FILE]
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/units.hpp"
#include "bench/memory/fio.hpp"
#include "bench/memory/process_status.hpp"
#include "bench/support/command_line.hpp"
#include "bench/support/report.hpp"
#include "bench/support/samples.hpp"
#include "bench/support/text_table.hpp"
#include "gradwire/session.hpp"
#include "gradwire/transport.hpp"
#include "memory/process_pool.hpp"
#include "memory/spill_cache.hpp"
#include "tests/support/scratch_file_access.hpp"

namespace gradwire::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
constexpr std::size_t kTile = std::size_t{16} << 10;
constexpr std::size_t kTensors = 24;

struct Options {
  std::string folder = ".";
  std::uint32_t rounds = 5;
  std::uint32_t steps = 20;
  std::uint32_t compute_ms = 100;
  std::string json;
  std::string markdown;
  std::uint64_t child_elements = 0;  // with this, the program is a child that trains
  std::uint64_t child_memory = 0;    // bytes of residuals of a rank in memory; 0: all
};

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Returns the bytes a second that fio reads and writes together; 0 where it is not installed.
double rate_of_fio(const std::string& folder) {
  const std::optional<Json> job =
      run_fio(folder, "--size=256M --bs=256k --rw=rw --rwmixread=50 --iodepth=32 --runtime=3");
  return job ? (*job)["read"]["bw_bytes"].get<double>() + (*job)["write"]["bw_bytes"].get<double>() : 0;
}

// Returns the bytes a second of rounds over arrays of which a third fits into memory. No codec works beside it.
double rate_of_rounds(const std::string& folder) {
  const std::uint64_t total = 192 * kMebibyte;
  const auto cache =
      std::make_shared<memory::SpillCache>(memory::PageFileOptions{.folder = folder, .holds = "arrays"}, total / 3);
  std::vector<memory::SpilledBytes> arrays;
  for (std::size_t i = 0; i < kTensors; ++i) {
    arrays.emplace_back(cache, total / kTensors);
  }
  std::vector<std::byte> tile(kTile, std::byte{1});
  const auto pass = [&] {
    for (memory::SpilledBytes& array : arrays) {
      for (std::size_t first = 0; first < array.size(); first += kTile) {
        array.load(first, tile);
        array.store(first, tile);
      }
    }
  };
  for (int round = 0; round < 3; ++round) {
    pass();
  }
  const memory::PageFileStatistics before = cache->statistics().file;
  const Clock::time_point begin = Clock::now();
  for (int round = 0; round < 6; ++round) {
    pass();
  }
  const memory::PageFileStatistics after = cache->statistics().file;
  return static_cast<double>(after.read + after.written - before.read - before.written) / seconds_since(begin);
}

// Returns the bytes of this process's scratch files that the page cache holds.
std::uint64_t cached_bytes(const std::string& folder) {
  std::uint64_t bytes = 0;
  for (const int file : test::open_scratch_files(std::filesystem::canonical(folder))) {
    const auto size = static_cast<std::size_t>(::lseek(file, 0, SEEK_END));
    void* const mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    std::vector<unsigned char> pages((size + 4095) / 4096);
    if (mapped != MAP_FAILED && ::mincore(mapped, size, pages.data()) == 0) {
      for (const unsigned char page : pages) {
        bytes += (page & 1U) * 4096;
      }
      ::munmap(mapped, size);
    }
    ::close(file);
  }
  return bytes;
}

struct Trained {
  double step_ms = 0;
  double finish_ms = 0;  // from the end of the compute to the end of the step
  double peak = 0;       // bytes of the process
  double cached = 0;     // bytes in the page cache
  double residuals = 0;  // the most bytes of residuals in the pool, of both ranks
};

// Trains two ranks as threads. The compute of a step is a wait, as that of a GPU is for the cores.
int be_child(const Options& options) {
  std::string policy = "floor = 0\n[defaults]\ncodec = \"int4\"\n";
  if (options.child_memory > 0) {
    policy += "residuals = { store = \"file:" + options.folder + "\", memory = \"" +
              std::to_string(options.child_memory / 1024) + "KiB\" }\n";
  }
  std::array<std::vector<double>, 2> times;
  std::uint64_t cached = 0;
  auto world = make_inproc_world(2);
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Session session(std::move(world[rank]), Policy::parse(policy));
      std::vector<std::vector<float>> gradients(kTensors, std::vector<float>(options.child_elements / kTensors));
      std::vector<TensorId> ids;
      for (std::size_t i = 0; i < kTensors; ++i) {
        for (std::size_t j = 0; j < gradients[i].size(); ++j) {
          gradients[i][j] = static_cast<float>(j % 1000) * (rank == 0 ? 1e-3F : 2e-3F);
        }
        ids.push_back(session.add("t" + std::to_string(i), view(gradients[i].data(), gradients[i].size())));
      }
      std::vector<double> step_times;
      std::vector<double> finish_times;
      for (std::uint32_t step = 0; step < options.steps + 4; ++step) {
        const Clock::time_point begin = Clock::now();
        for (std::size_t i = kTensors; i-- > 0;) {
          std::this_thread::sleep_until(
              begin + std::chrono::microseconds(1000ULL * options.compute_ms * (kTensors - i) / kTensors));
          session.ready(ids[i]);
        }
        const Clock::time_point computed = Clock::now();
        session.finish();
        if (step >= 4 && rank == 0) {  // the first ones find out in which order pages are used
          step_times.push_back(1000 * seconds_since(begin));
          finish_times.push_back(1000 * seconds_since(computed));
        }
      }
      if (rank == 0) {
        times = {step_times, finish_times};
        cached = options.child_memory > 0 ? cached_bytes(options.folder) : 0;
      }
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  const memory::PagePoolStatistics pool = memory::page_pool().statistics();
  std::printf(
      "%.3f %.3f %llu %llu %llu\n", median(times[0]), median(times[1]),
      static_cast<unsigned long long>(status_bytes("VmHWM:")), static_cast<unsigned long long>(cached),
      static_cast<unsigned long long>(pool.uses[static_cast<std::size_t>(memory::MemoryUse::residuals)].high_water));
  return 0;
}

Trained train_in_child(const Options& options, const std::string& folder, std::uint64_t elements,
                       std::uint64_t memory) {
  const std::string text =
      output_of("/proc/" + std::to_string(::getpid()) + "/exe --folder '" + folder + "' --steps " +
                std::to_string(options.steps) + " --compute-ms " + std::to_string(options.compute_ms) +
                " --child-elements " + std::to_string(elements) + " --child-memory " + std::to_string(memory));
  Trained trained;
  if (std::sscanf(text.c_str(), "%lf %lf %lf %lf %lf", &trained.step_ms, &trained.finish_ms, &trained.peak,
                  &trained.cached, &trained.residuals) != 5) {
    throw std::runtime_error("a training ended without figures; run this with --child-elements to see why");
  }
  return trained;
}

Trained median_of(const std::vector<Trained>& all) {
  const auto of = [&](double Trained::*member) {
    std::vector<double> values;
    for (const Trained& one : all) {
      values.push_back(one.*member);
    }
    return median(values);
  };
  return {of(&Trained::step_ms), of(&Trained::finish_ms), of(&Trained::peak), of(&Trained::cached),
          of(&Trained::residuals)};
}

std::string mebibytes(double bytes) { return fixed(bytes / static_cast<double>(kMebibyte), 1) + " MiB"; }

int run(int argc, char** argv) {
  Options options;
  CommandLine command_line("Measures residuals of which two thirds lie in a file.");
  command_line.option("--folder", options.folder, "where scratch files lie; a folder on a disk").existing_path();
  command_line.option("--rounds", options.rounds, "trainings of each kind").positive();
  command_line.option("--steps", options.steps, "steps of a training").positive();
  command_line.option("--compute-ms", options.compute_ms, "compute of a step");
  command_line.option("--json", options.json, "file for the figures");
  command_line.option("--markdown", options.markdown, "file for the table");
  command_line.option("--child-elements", options.child_elements, "train with so many elements; used by itself");
  command_line.option("--child-memory", options.child_memory, "bytes of a rank's residuals in memory");
  command_line.parse(argc, argv);
  if (options.child_elements > 0) {
    return be_child(options);
  }
  Json report = make_report("gradwire.bench_spill.1");
  std::vector<double> fio;
  std::vector<double> rounds;
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    fio.push_back(rate_of_fio(options.folder));
    rounds.push_back(rate_of_rounds(options.folder));
  }
  const double disk = median(fio) > 0 ? median(fio) : median(rounds);
  // Two thirds, read and written, take 100 ms at the rate of the disk. Two ranks each keep 4 bytes an element for their
  // own values and as much for the half that they own.
  const double residuals = disk * 0.1 * 3 / 4;
  const auto elements = static_cast<std::uint64_t>(residuals / 12) / kTensors * kTensors;
  const std::uint64_t memory = elements * 6 / 3;
  std::vector<Trained> all;
  std::vector<Trained> third;
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    all.push_back(train_in_child(options, options.folder, elements, 0));
    third.push_back(train_in_child(options, options.folder, elements, memory));
  }
  const Trained a = median_of(all);
  const Trained b = median_of(third);
  TextTable table({"residuals of two ranks, " + mebibytes(12.0 * static_cast<double>(elements)), "step",
                   "after compute", "residuals in memory", "page cache", "peak of the process"});
  const auto add = [&](const std::string& name, const Trained& t) {
    table.add({name, fixed(t.step_ms, 1) + " ms", fixed(t.finish_ms, 1) + " ms", mebibytes(t.residuals),
               mebibytes(t.cached), mebibytes(t.peak)});
    report["rows"].push_back({{"residuals", name},
                              {"step_ms", t.step_ms},
                              {"finish_ms", t.finish_ms},
                              {"residual_bytes", t.residuals},
                              {"cached_bytes", t.cached},
                              {"peak_bytes", t.peak}});
  };
  add("all in memory", a);
  add("a third in memory", b);
  const double limit = 2 * static_cast<double>(memory);
  std::string text = "Medians of " + std::to_string(options.rounds) + " runs. ";
  text += median(fio) > 0 ? "fio --direct=1, requests of 256 KiB, half reads: " + mebibytes(median(fio)) + "/s; "
                          : std::string("fio is not installed, so its rate is not known; ");
  text += "rounds over arrays: " + mebibytes(median(rounds)) + "/s" +
          (median(fio) > 0 ? ", " + fixed(100 * median(rounds) / median(fio), 0) + "%" : "") + ". A step of " +
          std::to_string(options.compute_ms) + " ms of compute takes " + fixed(b.step_ms / a.step_ms, 2) +
          " times as long with a third of the residuals in memory. The two ranks may hold " + mebibytes(limit) +
          " of residuals in memory, and held " + fixed(100 * (b.residuals + b.cached) / limit, 0) +
          "% of it, page cache included.";
  report["fio_bytes_per_second"] = number_or_null(median(fio) > 0 ? median(fio) : std::nan(""));
  report["bytes_per_second"] = median(rounds);
  report["memory"] = limit;
  publish(text, table, {options.markdown, options.json}, report);
  return 0;
}

}  // namespace
}  // namespace gradwire::bench

int main(int argc, char** argv) {
  return gradwire::bench::program("bench_spill", [&] { return gradwire::bench::run(argc, argv); });
}
