#include "moeloom/base/violations.hpp"

#include <algorithm>
#include <span>
#include <string_view>

#include "cli/command_line.hpp"
#include "cli/options.hpp"

namespace moeloom {
namespace {

OptionTable table_of(MeshQuestion& question) {
  OptionTable table;
  table.group("Hosts");
  table.add("slots", "LIST", "ranks that each host may take, with commas; filled in order",
            "the hosts that are left, as the launcher has them", question.slots);
  table.add("host-memory", "BYTES", "of the host that has least; 0: as this one has",
            "the hosts' memory, gathered by --this-host", question.host_bytes, read_bytes, exact_bytes_text);
  table.add("this-host", "BOOL", "instead: print how many bytes of memory this host has",
            "launch/go-on.sh asks each host", question.this_host);
  table.add("this-network", "BOOL", "instead: say why this host cannot use the network of MOELOOM_NET",
            "a host without it would wait for ever in MPI_Init", question.this_network);
  return table;
}

}  // namespace

MeshQuestion parse_mesh_question(int argc, const char* const* argv) {
  const std::span words(argv, static_cast<std::size_t>(argc));
  const auto dashes = std::ranges::find(words, std::string_view("--"),
                                        [](const char* word) { return std::string_view(word); });
  const auto own = static_cast<int>(dashes - words.begin());
  MeshQuestion question;
  Violations violations;
  read_command_line(table_of(question), own, argv, violations);
  violations.unless(
      !question.slots.empty() &&
          std::ranges::all_of(question.slots, [](Index n) { return n > 0 && n <= kLargestCount; }),
      "--slots must be a list of 1 to " + std::to_string(kLargestCount) + " ranks each, such as 4,4");
  if (dashes != words.end())
    question.train = parse_train_options(argc - own, argv + own);
  else
    violations.unless(question.this_host || question.this_network,
                      "-- and the options of train are missing: the run that is to fit");
  const TrainOptions& train = question.train;
  for (const auto& [name, value] :
       {std::pair("ep", train.mesh.ep), std::pair("seq-len", train.batch.length),
        std::pair("global-batch", train.batch.sequences), std::pair("accumulate", train.batch.micro_batches)})
    violations.unless_at_least(1, name, value);
  violations.throw_if_any();
  return question;
}

Help mesh_help() {
  MeshQuestion question;
  return "moeloom mesh: on how many ranks of the hosts that are left, and at which mesh, a run fits\n\n"
         "  moeloom mesh --slots 16,16 --host-memory 256GiB -- --resume RUN\n\n"
         "The most ranks over which the sequences of a step divide and which fit the memory of the hosts, "
         "there the\n"
         "fewest micro-batches, not fewer than --accumulate, and there the ep nearest to --ep. Any options "
         "of train\n"
         "may follow --. launch/go-on.sh --elastic asks it.\n" +
         help_of(table_of(question));
}

}  // namespace moeloom
