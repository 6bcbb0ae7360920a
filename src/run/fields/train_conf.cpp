#include <algorithm>

#include "fields/option_groups.hpp"
#include "fields/train_fields.hpp"

namespace moeloom {

std::string resolved_config(const TrainOptions& options) {
  TrainOptions copy = options;
  const bool shape_elsewhere = !options.model.folder.empty() || !options.run.resume.empty();
  const std::vector<std::string>& given = options.model.shape_given;
  std::string text = "# Settings of `moeloom train`, which reads them back.\n";
  std::string group;
  const OptionTable table = train_table(copy);
  for (const Option& option : table.options()) {
    if (group != option.group) text += "\n# " + (group = option.group) + "\n";
    const bool is_shape = std::ranges::count(shape_option_names(), option.name) > 0;
    if (is_shape && shape_elsewhere && std::ranges::count(given, option.name) == 0) continue;
    if (option.name == "steps" && options.data.epochs != 0) continue;  // a file says one end of a run
    const std::string value = config_value(option.get());
    text += option.name + (value.empty() ? " =" : " = " + value) + "\n";
  }
  return text;
}

}  // namespace moeloom
