#include "bench/ratio/measure.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

#include "bench/support/samples.hpp"
#include "choice/codec_effect.hpp"
#include "gradwire/communicator.hpp"
#include "gradwire/session.hpp"
#include "plan/plan.hpp"
#include "record/gradient_files.hpp"

namespace gradwire::bench {
namespace {

// Returns the median time of a call, over at least five calls and 6 ms.
double time_of(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  call();
  std::vector<double> samples;
  for (const auto end = Clock::now() + std::chrono::milliseconds(6); samples.size() < 5 || Clock::now() < end;) {
    const auto start = Clock::now();
    call();
    samples.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return median(samples);
}

double nmse(const CodecSpec& codec, const std::vector<float>& values) {
  const void* const step = values.data();
  const choice::CodecEffect effect =
      choice::measure_effect(codec, DType::f32, static_cast<std::uint32_t>(values.size()), {&step, 1});
  return effect.norm > 0 ? effect.error / effect.norm : 0;
}

// Runs `body` on a thread for each rank and returns rank 0's statistics. Throws an error of any rank.
Statistics run_ranks(int ranks, const std::function<Statistics(std::shared_ptr<Transport>)>& body) {
  auto world = make_inproc_world(ranks);
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> errors(world.size());
  std::vector<Statistics> results(world.size());
  for (std::size_t rank = 0; rank < world.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        results[rank] = body(world[rank]);
      } catch (const std::exception& error) {
        errors[rank] = std::current_exception();
        world[rank]->abort(Error(ErrorCode::internal, error.what()));
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (const auto& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
  return results.front();
}

Row measure_layer(const Record& record, const TensorPolicy& resolved, const std::string& policy, int ranks) {
  choice::TrialFrame frame(resolved.codec, view(record.values.data(), record.values.size()));
  std::vector<float> sum(record.values.size());
  Row row{.point = record.point,
          .layer = record.name,
          .policy = policy,
          .codec = resolved.codec.to_string(),
          .elements = record.values.size()};
  const double bytes = static_cast<double>(row.elements) * sizeof(float);
  row.nmse = nmse(resolved.codec, record.values);
  row.cost.encode_seconds = time_of([&] { frame.encode(); });
  row.nominal_ratio = bytes / static_cast<double>(frame.bytes());  // known once it is encoded
  row.cost.decode_seconds = time_of([&] { frame.decode_and_add(sum.data()); });
  const Statistics counted = run_ranks(ranks, [&](std::shared_ptr<Transport> transport) {
    Communicator communicator(std::move(transport));
    std::vector<float> output(record.values.size());
    return communicator.all_reduce(view(record.values.data(), record.values.size()), view(output.data(), output.size()),
                                   {.codec = resolved.codec, .algorithm = resolved.algorithm});
  });
  row.counted_ratio = counted.ratio();
  row.cost.bytes = bytes;
  row.cost.wire_bytes = static_cast<double>(counted.bytes_sent);
  return row;
}

// Reduces all layers of a point of training through a session, as a step does.
Row measure_all(const NamedPolicy& policy, std::span<const Record> point, const std::vector<Row>& layers, int ranks) {
  const Statistics counted = run_ranks(ranks, [&](std::shared_ptr<Transport> transport) {
    Session session(std::move(transport), policy.policy);
    std::vector<std::vector<float>> gradients;
    std::vector<TensorId> ids;
    for (const Record& record : point) {
      gradients.push_back(record.values);
    }
    for (std::size_t i = 0; i < point.size(); ++i) {
      ids.push_back(session.add(point[i].name, view(gradients[i].data(), gradients[i].size())));
    }
    std::for_each(ids.rbegin(), ids.rend(), [&session](TensorId id) { session.ready(id); });
    session.finish();
    return session.statistics().all();
  });
  Row all{.point = point.front().point, .layer = "all layers", .policy = policy.name, .codec = layers.front().codec};
  double frames = 0, error = 0, norm = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    double layer_norm = 0;
    for (const float value : point[i].values) {
      layer_norm += static_cast<double>(value) * value;
    }
    all.elements += layers[i].elements;
    all.codec = all.codec == layers[i].codec ? all.codec : "mixed";
    all.cost.bytes += layers[i].cost.bytes;
    all.cost.encode_seconds += layers[i].cost.encode_seconds;
    all.cost.decode_seconds += layers[i].cost.decode_seconds;
    frames += layers[i].cost.bytes / layers[i].nominal_ratio;
    error += layers[i].nmse * layer_norm;
    norm += layer_norm;
  }
  all.nominal_ratio = all.cost.bytes / frames;
  all.nmse = norm > 0 ? error / norm : 0;
  all.counted_ratio = counted.ratio();
  all.cost.wire_bytes = static_cast<double>(counted.bytes_sent);
  return all;
}

}  // namespace

NamedPolicy make_policy(const std::string& text) {
  if (text == "built-in") {
    return {text, Policy()};
  }
  if (text.size() > 5 && text.ends_with(".toml")) {
    return {text.substr(text.find_last_of('/') + 1), Policy::load(text)};
  }
  return {text, Policy::uniform(text)};
}

std::vector<Record> read_records(const std::string& file) {
  std::vector<Record> records;
  for (const record::StoredGradient& stored : record::list_file(file).gradients) {
    if (stored.dtype != DType::f32) {
      throw std::runtime_error(file + ": holds " + std::string(to_string(stored.dtype)) + "; bench_ratio reads f32");
    }
    Record one{.name = stored.name, .point = static_cast<std::uint32_t>(stored.step), .values = {}};
    one.values.resize(stored.count);
    record::GradientValues(stored).read(0, stored.count, one.values.data());
    records.push_back(std::move(one));
  }
  return records;
}

std::vector<Row> measure_point(const NamedPolicy& policy, std::span<const Record> point, int ranks) {
  std::vector<TensorInfo> tensors;
  for (const Record& record : point) {
    tensors.push_back({.name = record.name, .count = record.values.size()});
  }
  plan::PlanOptions options;
  options.world_size = ranks;
  const plan::Plan plan = plan::make_plan(policy.policy, tensors, options);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < point.size(); ++i) {
    rows.push_back(measure_layer(point[i], plan.tensors[i].policy, policy.name, ranks));
  }
  rows.push_back(measure_all(policy, point, rows, ranks));
  return rows;
}

}  // namespace gradwire::bench
