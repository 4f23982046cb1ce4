// Tests gradwire plan --gpu: its file, what it prints, and that the documents hold what it writes: WRITE=1
// gpu_plan_test writes docs/results/gpu-model.txt, docs/pictures/launches-*.svg and the table of the page again.
#include "cli/gpu_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.hpp"
#include "cli/gpu_file.hpp"
#include "gradwire/error.hpp"
#include "tests/support/committed_file.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/mutations.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/scratch_folder.hpp"

namespace gradwire::cli {
namespace {

using exchange::DeviceCluster;
using exchange::DeviceWay;
using test::error_of;
using test::is_committed;
using test::read_text;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::filesystem::path kSource = GRADWIRE_SOURCE_DIR;
constexpr std::uint64_t kBytesOfMiB = 1 << 20;

std::filesystem::path file_of(const std::string& preset) {
  return kSource / "python-free-examples/gpus" / (preset + ".toml");
}
const std::vector<std::string>& presets() {
  static const std::vector<std::string> kAll{"nvlink_2", "nvlink_4",     "nvlink_8",
                                             "pcie_8",   "ethernet_8x8", "infiniband_8x8"};
  return kAll;
}

std::string printed(const PlanCommandOptions& options) {
  std::ostringstream out;
  EXPECT_EQ(plan(options, out), 0);
  return out.str();
}

std::string small(const std::string& more = "", const std::string& nccl = "[nccl]\nrate = \"20GB/s\"\n") {
  return "version = 1\ncards = 2\n[inside]\nrate = \"20GB/s\"\n" + nccl + more;
}

// Mutation tried: cards do not share the link of their node.
TEST(GpuFile, EveryKey) {
  const DeviceCluster cluster = parse_gpu_file(R"(version = 1
name = "all"
nodes = 4
cards = 2
[inside]
rate = "340GB/s"
latency = "12us"
peer_access = false
[between]
rate = "100Gbit/s"
latency = "60us"
shared = true
[nccl]
rate = "11GB/s"
latency = "500us"
inside_rate = "300GB/s"
inside_latency = "38us"
[card]
copy = "2000GB/s"
tiles = 100
wave = "5us"
least_kernel = "2us"
[host]
kernel = "4us"
group = "20us"
message = "0.5us"
event = "1us"
[fused]
start = "20us"
link_share = "50%"
frames = "500GB/s"
)",
                                               "all.toml");
  EXPECT_EQ(cluster.name, "all");
  EXPECT_EQ(cluster.nodes, 4);
  EXPECT_EQ(cluster.cards, 2);
  EXPECT_FALSE(cluster.peer_access);
  const std::pair<double, double> values[] = {{cluster.inside.bytes_per_second, 340e9},
                                              {cluster.inside.latency_seconds, 12e-6},
                                              {cluster.between.bytes_per_second, 6.25e9},
                                              {cluster.between.latency_seconds, 60e-6},
                                              {cluster.nccl.bytes_per_second, 11e9},
                                              {cluster.nccl.latency_seconds, 500e-6},
                                              {cluster.nccl_inside.bytes_per_second, 300e9},
                                              {cluster.nccl_inside.latency_seconds, 38e-6},
                                              {cluster.card.bytes_per_second, 2e12},
                                              {cluster.card.tiles_at_once, 100},
                                              {cluster.card.wave_seconds, 5e-6},
                                              {cluster.card.least_kernel_seconds, 2e-6},
                                              {cluster.host.kernel, 4e-6},
                                              {cluster.host.group, 20e-6},
                                              {cluster.host.message, 0.5e-6},
                                              {cluster.host.event, 1e-6},
                                              {cluster.fused.start_seconds, 20e-6},
                                              {cluster.fused.link_share, 0.5},
                                              {cluster.fused.frame_bytes_per_second, 500e9}};
  for (std::size_t i = 0; i < std::size(values); ++i) {
    EXPECT_NEAR(values[i].first, values[i].second, 1e-9 * values[i].second) << "value " << i;
  }
}

TEST(GpuFile, WhatIsNotSaidIsAnH100) {
  const DeviceCluster cluster = parse_gpu_file(small(), "two.toml");
  EXPECT_EQ(cluster.name, "two");
  EXPECT_EQ(cluster.nodes, 1);
  EXPECT_TRUE(cluster.peer_access);
  EXPECT_DOUBLE_EQ(cluster.card.bytes_per_second, 2.93e12);
  EXPECT_DOUBLE_EQ(cluster.nccl_inside.bytes_per_second, 20e9);
  EXPECT_NO_THROW((void)forecast_device(cluster, DeviceWay::one_lane, {.count = 1 << 20, .codec = "int8"}));
}

// Mutation tried: a rate has no lower bound.
TEST(GpuFile, MistakesNameThePlaceAndTheFix) {
  const auto message = [](const std::string& text) {
    return std::string(error_of([&] { (void)parse_gpu_file(text, "g.toml"); }).what());
  };
  const std::pair<std::string, std::string> mistakes[] = {
      {"version = 2\n", "g.toml:1:11: this build reads version 1 of the GPU format; write version = 1"},
      {"cards = 0\n", "g.toml:1:9: cards is 0; write a number from 1 to 1024"},
      {"nodes = \"8\"\n", "g.toml:1:9: nodes must be an integer such as 8, not a string"},
      {"name = \"\"\n", "g.toml:1:8: name has 0 bytes; write 1 to 100"},
      {"card = 3\n", "g.toml:1:8: card is a table; write [card] on a line of its own"},
      {"links = 3\n", "g.toml:1:1: unknown key \"links\" at the top of the file"},
      {small("[card]\ncopi = \"1GB/s\"\n"), "g.toml:8:1: unknown key \"copi\" in [card]; did you mean \"copy\"?"},
      {small("[card]\ntiles = 0\n"), "g.toml:8:9: tiles is 0; write a number of tiles that run at once"},
      {small("[host]\nkernel = 3\n"), "g.toml:8:10: kernel must be a duration such as \"14us\", not an integer"},
      {small("[host]\nkernel = \"3\"\n"), "g.toml:8:10: bad duration \"3\": write a number and ns, us"},
      {small("[fused]\nlink_share = \"110%\"\n"), "g.toml:8:14: bad share \"110%\""},
      {small("[between]\nshared = 1\n"), "g.toml:8:10: shared must be true or false, not an integer"},
      {small("[between]\nlatency = \"1us\"\n"), "g.toml:7:1: [between] has no rate; write the rate that a card"},
      {"version = 1\ncards = 2\n[inside]\nlatency = \"1us\"\n",
       "g.toml:3:1: [inside] has no rate; write the rate that"},
      {"version = 1\ncards = 2\n[inside]\nrate = \"x\"\n", "g.toml:4:8: bad rate \"x\""},
      {small("[between]\nrate = \"10bit/s\"\n"), "g.toml:8:8: rate is 10bit/s; write a rate from 1kB/s on"},
      {small("", ""), "g.toml:1:1: there is no [nccl], with which all is compared; write it, with rate and latency"},
      {small("", "[nccl]\nlatency = \"1us\"\n"), "g.toml:5:1: [nccl] has no rate; write the rate that its all-reduce"},
      {"version = 1\n[nccl]\nrate = \"1GB/s\"\n", "g.toml:1:1: nodes x cards is 1 x 1; write 2 to 1024 cards in all"},
      {"nodes = 1024\ncards = 1024\n", "g.toml:1:1: nodes x cards is 1024 x 1024; write 2 to 1024 cards in all"},
      {"cards = 2\n[nccl]\nrate = \"1GB/s\"\n", "g.toml:1:1: a node has 2 cards, but there is no [inside]"},
      {"nodes = 2\n[nccl]\nrate = \"1GB/s\"\n", "g.toml:1:1: there are 2 nodes, but no [between]"},
      {"cards = \n", "g.toml:1:9: not valid TOML"},
      {"name = eight\n", "text needs quotes; write \"eight\""},
  };
  for (const auto& [text, wanted] : mistakes) {
    EXPECT_THAT(message(text), HasSubstr(wanted)) << text;
  }
  EXPECT_THROW((void)load_gpu_file("/nonexistent/gpu.toml"), Error);
}

TEST(GpuFile, DamagedFilesAreReadOrRefused) {
  std::vector<std::string> texts;
  for (const std::string& preset : presets()) {
    texts.push_back(read_text(file_of(preset)));
  }
  const std::vector<std::string> pieces{"[card]\n",
                                        "[",
                                        "]",
                                        "{",
                                        "\"",
                                        ".",
                                        "=",
                                        "\n",
                                        "\xff",
                                        "-1",
                                        "1e999",
                                        "nan",
                                        "nodes = 1024\n",
                                        "0",
                                        "GB/s",
                                        "us",
                                        std::string(1, '\0')};
  test::parse_mutations(texts, pieces, 451, 2000, [](const std::string& text) {
    const DeviceCluster cluster = parse_gpu_file(text, "fuzz");
    ASSERT_GT(cluster.ranks(), 1);
    for (const DeviceWay way : device_ways(cluster)) {
      ASSERT_GT(forecast_device(cluster, way, {.count = 4096, .codec = gpu_codec()}).seconds, 0);
    }
  });
}

TEST(GpuPlan, PrintsATableOrTheStepsOfAModel) {
  const std::string preset = file_of("nvlink_8").string();
  const std::string table = printed({.layers = std::nullopt, .gpu = preset, .buckets = {"25MiB"}});
  EXPECT_THAT(table, AllOf(HasSubstr("NVLink, 8 GPUs: 1 node of 8 cards, 8 ranks"), HasSubstr("not measured"),
                           HasSubstr("25MiB   four lanes      4       98       5      24"),
                           HasSubstr("25MiB   one lane        1        6       2      12"), HasSubstr("one kernel")));
  EXPECT_THAT(table, ::testing::Not(HasSubstr("tiers  ")));
  const std::string model = (kSource / "python-free-examples/models/gpt2_medium.toml").string();
  const std::string steps = printed({.layers = model, .gpu = preset});
  EXPECT_THAT(steps,
              AllOf(HasSubstr("gpt2_medium.toml: 73 layers in "), HasSubstr("step ms"), HasSubstr("one kernel")));
  EXPECT_THAT(error_of([&] { (void)printed({.layers = std::nullopt, .gpu = preset, .buckets = {"1B"}}); }).what(),
              HasSubstr("--buckets 1B: write sizes from 4B to 4GiB"));
}

TEST(GpuPlan, ASlowLinkGainsAndAQuickOneDoesNot) {
  const std::string model = (kSource / "python-free-examples/models/gpt2_medium.toml").string();
  const auto speed_up = [&](const char* preset, const std::string& way) {
    std::istringstream lines(printed({.layers = model, .gpu = file_of(preset).string()}));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(way)) {
        return std::stod(line.substr(line.find_last_of(' ')));
      }
    }
    ADD_FAILURE() << "no line of " << way;
    return 0.0;
  };
  EXPECT_GT(speed_up("ethernet_8x8", "tiers"), 1.3);
  EXPECT_LT(speed_up("ethernet_8x8", "four lanes"), 1.0);
  EXPECT_NEAR(speed_up("nvlink_8", "NCCL"), 1, 1e-9);
}

TEST(GpuPlan, BucketsOfSeveralTensorsTakeNoOtherKernels) {
  const auto kernels = [](const std::string& layers) {
    const std::string text = "version = 1\ncompute = \"10ms\"\n" + layers;
    std::ostringstream out;
    print_gpu_steps(load_gpu_file(file_of("nvlink_8")), {ModelFile::parse(text, "m.toml"), "m.toml"}, out);
    std::istringstream words(out.str().substr(out.str().find("one lane") + 8));
    std::string step, exposed, communication, count;
    words >> step >> exposed >> communication >> count;
    return count;
  };
  EXPECT_EQ(kernels("[[layer]]\nname = \"a\"\ncount = 1_000_000\n"), "6");
  EXPECT_EQ(kernels("[[layer]]\nname = \"a#\"\ncount = 100_000\nrepeat = 2\n"), "6");
}

TEST(GpuPlan, TheToolRefusesOptionsThatTheFileReplaces) {
  const std::string gpu = std::string(GRADWIRE_TOOL) + " plan --gpu " + file_of("pcie_8").string();
  EXPECT_EQ(test::run_program(gpu + " --buckets 1MiB,25MiB").status, 0);
  const std::pair<const char*, const char*> wrong[] = {
      {" --link 1Gbit/s", "--link"}, {" --ranks 8", "--ranks"}, {" --codec-rate 1GB/s", "--codec-rate"}};
  for (const auto& [options, name] : wrong) {
    const test::Outcome outcome = test::run_program(gpu + options);
    EXPECT_EQ(outcome.status, kUsageStatus) << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(name));
  }
  const test::Outcome alone = test::run_program(std::string(GRADWIRE_TOOL) + " plan --buckets 1MiB");
  EXPECT_EQ(alone.status, kUsageStatus);
  EXPECT_THAT(alone.output, HasSubstr("--gpu"));
}

TEST(GpuPlan, WritesItsPicture) {
  const test::ScratchFolder folder;
  const std::filesystem::path file = folder.path() / "launches.svg";
  (void)printed({.layers = std::nullopt, .gpu = file_of("nvlink_8").string(), .svg = file.string()});
  const std::string svg = read_text(file);
  EXPECT_THAT(svg, AllOf(HasSubstr("four lanes: 98 kernels, 5 groups, 448 us; NCCL 180 us"),
                         HasSubstr("one lane: 6 kernels, 2 groups"), HasSubstr("not measured")));
  std::size_t bars = 0;
  for (std::size_t at = svg.find("height=\"12\""); at != std::string::npos; at = svg.find("height=\"12\"", at + 1)) {
    ++bars;
  }
  EXPECT_GT(bars, 2U * 98) << "each kernel is a bar of the host and one of the GPU";
  EXPECT_EQ(svg, draw_launches(load_gpu_file(file_of("nvlink_8")), 25 * kBytesOfMiB));
}

TEST(GpuDocuments, TheTableOfEveryPreset) {
  std::string all;
  for (const std::string& preset : presets()) {
    all += (all.empty() ? "" : "\n\n") + printed({.layers = std::nullopt, .gpu = file_of(preset).string()});
  }
  EXPECT_TRUE(is_committed("docs/results/gpu-model.txt", all));
}

TEST(GpuDocuments, ThePictureOfEveryPreset) {
  for (const std::string& preset : presets()) {
    std::string name = preset;
    std::replace(name.begin(), name.end(), '_', '-');
    EXPECT_TRUE(is_committed("docs/pictures/launches-" + name + ".svg",
                             draw_launches(load_gpu_file(file_of(preset)), 25 * kBytesOfMiB)));
  }
}

// The page's table: microseconds and, of each way, how many times as fast as NCCL it is; bold where it is slower.
std::string page_table() {
  std::ostringstream out;
  out << "| cards and links | MiB | NCCL | four lanes (before) | one lane (today) | tiers | one kernel |\n"
         "|---|---:|---:|---:|---:|---:|---:|\n";
  for (const std::string& preset : presets()) {
    const DeviceCluster cluster = load_gpu_file(file_of(preset));
    for (const std::uint64_t mib : {1, 4, 25, 256}) {
      out << "| " << (mib == 1 ? cluster.name : "") << " | " << mib;
      const std::vector<DeviceWay> ways = device_ways(cluster);
      for (const DeviceWay way :
           {DeviceWay::nccl, DeviceWay::four_lanes, DeviceWay::one_lane, DeviceWay::tiers, DeviceWay::fused}) {
        out << " | ";
        if (std::find(ways.begin(), ways.end(), way) == ways.end()) {
          continue;
        }
        const auto one = forecast_device(cluster, way, bucket_of(mib * kBytesOfMiB));
        char text[64];
        const char* mark = one.ratio() < 1 ? "**" : "";
        way == DeviceWay::nccl ? std::snprintf(text, sizeof text, "%lld", std::llround(one.seconds * 1e6))
                               : std::snprintf(text, sizeof text, "%lld: %s%.2f%s", std::llround(one.seconds * 1e6),
                                               mark, one.ratio(), mark);
        out << text;
      }
      out << " |\n";
    }
  }
  return out.str();
}

TEST(GpuDocuments, TheTableOfThePage) {
  const std::filesystem::path path = "docs/explanation/device-collectives.md";
  const std::string page = read_text(kSource / path);
  const std::size_t begin = page.find("| cards and links |");
  ASSERT_NE(begin, std::string::npos) << path << " has no table";
  const std::size_t end = page.find("\n\n", begin) + 1;
  EXPECT_TRUE(is_committed(path, page.substr(0, begin) + page_table() + page.substr(end)));
}

}  // namespace
}  // namespace gradwire::cli
