#include "bench/records/campaign.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace gradwire::records {
namespace {

constexpr int kFirstSeed = 1;

std::string text_of(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", rate);
  return text;
}

std::string hash_of(const std::vector<std::string>& arguments) {
  std::string joined;
  for (const std::string& argument : arguments) {
    joined += argument + '\n';
  }
  char text[16];
  std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(std::hash<std::string>()(joined)));
  return text;
}

Result read(const std::filesystem::path& file) {
  try {
    std::ifstream in(file);
    const auto report = nlohmann::json::parse(in);
    const auto& row = report.at("rows").at(0);
    const auto number = [&](const char* name) {
      return row.at(name).is_null() ? NAN : row.at(name).get<double>();  // diverged
    };
    return {number("held_out_loss"), number("train_loss"), number("bits_per_element_and_hop"),
            number("bits_per_element_and_hop_in_whole")};
  } catch (const std::exception& error) {
    throw std::runtime_error(file.string() + ": char_lm did not write it (" + error.what() +
                             "); remove it, and its training is made again");
  }
}

}  // namespace

const char* to_string(Data data) { return data == Data::iid ? "iid" : "own"; }

std::string Run::file() const {
  return std::string(to_string(data)) + "-" + row + "-" + policy + "-" + std::to_string(steps) + "-lr" + text_of(rate) +
         "-s" + std::to_string(seed) + ".json";
}

Campaign::Campaign(Settings settings) : settings_(std::move(settings)), rows_(make_rows(settings_)) {
  std::filesystem::create_directories(settings_.folder);
  for (const auto& entry : std::filesystem::directory_iterator(settings_.folder)) {
    if (entry.path().extension() == ".json") {
      made_.emplace(entry.path().filename().string(), read(entry.path()));
    }
  }
}

int Campaign::seeds(const Row& row) const { return std::min(row.seeds, settings_.seeds); }

Run Campaign::training(Data data, const Row& row, double rate, std::uint64_t seed) const {
  return {data, row.name, rate, seed, settings_.steps, hash_of(row.arguments)};
}

const Result* Campaign::find(const Run& run) const {
  const auto found = made_.find(run.file());
  return found == made_.end() ? nullptr : &found->second;
}

std::optional<double> Campaign::best_rate(Data data, const Row& row) const {
  std::optional<double> best;
  double loss = INFINITY;
  for (const double rate : settings_.rates) {
    const Result* result = find(training(data, row, rate, kFirstSeed));
    if (result == nullptr) {
      return std::nullopt;
    }
    if (result->held_out_loss < loss || !best) {
      loss = std::isnan(result->held_out_loss) ? INFINITY : result->held_out_loss;
      best = rate;
    }
  }
  return best;
}

std::map<std::uint64_t, Result> Campaign::results(Data data, const Row& row) const {
  std::map<std::uint64_t, Result> results;
  const std::optional<double> rate = best_rate(data, row);
  for (int seed = kFirstSeed; rate && seed <= seeds(row); ++seed) {
    const auto number = static_cast<std::uint64_t>(seed);
    if (const Result* result = find(training(data, row, *rate, number))) {
      results.emplace(number, *result);
    }
  }
  return results;
}

std::vector<Run> Campaign::tunings() const {
  std::vector<Run> runs;
  for (const Data data : kData) {
    for (const Row& row : rows_) {
      for (const double rate : settings_.rates) {
        if (wanted(data, row)) {
          runs.push_back(training(data, row, rate, kFirstSeed));
        }
      }
    }
  }
  return runs;
}

std::optional<Run> Campaign::next() const {
  for (const Run& run : tunings()) {
    if (find(run) == nullptr) {
      return run;
    }
  }
  for (int seed = kFirstSeed + 1; seed <= settings_.seeds; ++seed) {
    for (const Data data : kData) {
      for (const Row& row : rows_) {
        if (!wanted(data, row) || seed > seeds(row)) {
          continue;
        }
        if (const Run run = training(data, row, *best_rate(data, row), static_cast<std::uint64_t>(seed));
            find(run) == nullptr) {
          return run;
        }
      }
    }
  }
  return std::nullopt;
}

Campaign::Count Campaign::count() const {
  Count count;
  for (const Run& run : tunings()) {
    ++count.all;
    count.made += find(run) != nullptr ? 1 : 0;
  }
  for (const Data data : kData) {
    for (const Row& row : rows_) {
      if (wanted(data, row)) {
        count.all += seeds(row) - 1;  // the first one is among the tunings
        count.made += std::max(0, static_cast<int>(results(data, row).size()) - 1);
      }
    }
  }
  return count;
}

std::vector<std::string> Campaign::arguments(const Run& run) const {
  std::vector<std::string> result{"--width", "128", "--layers", "1", "--context", "32", "--batch", "8"};
  const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& each) { return each.name == run.row; });
  result.insert(result.end(), row->arguments.begin(), row->arguments.end());
  const std::vector<std::string> own{
      "--steps", std::to_string(run.steps), "--lr",   text_of(run.rate),
      "--seed",  std::to_string(run.seed),  "--json", (std::filesystem::path(settings_.folder) / run.file()).string()};
  result.insert(result.end(), own.begin(), own.end());
  if (run.data == Data::iid) {
    result.emplace_back("--iid");
  }
  return result;
}

}  // namespace gradwire::records
