"""Rows of hand-made runs: accuracies by seed, on the validation and on the test set."""

from made_runs import DDP, write_run

from shoal.compare.repeated.rows import Place, rows_of

TOPK = f"{DDP} --exchange compressed:topk"
EVEN = ((9.0, 0.5, 0.0),) * 2


def made_rows(folder, given, reasons=None, **options):
    """Rows by name, each with its accuracies by seed as (validation, test); a name with a comma is of a sweep.

    `reasons` says why other runs failed.
    """
    folders, places = [], {}
    for name, accuracies in given.items():
        for seed, (validation, test) in enumerate(accuracies):
            run = f"{name},seed={seed}" if seed else name
            flags = "--threads 1" if name.startswith("single") else TOPK
            more = {"test_accuracy": test, **({"ranks": EVEN} if flags == TOPK else {})}
            if validation is not None:
                more["validations"] = (validation / 2, validation)
            more |= options.get(name, {})
            folders.append(write_run(folder / run, f"{flags} --seed {seed}", **more))
            places[run] = Place(name, name.partition(",")[0] if "," in name else "")
    for run in reasons or {}:
        row = run.partition(",seed=")[0]
        places[run] = Place(row, row.partition(",")[0] if "," in row else "")
    return rows_of(folders, places, reasons)


def three_rows(folder):
    """A reference and two values of a sweep: the first is better on the validation set, the second on the test set."""
    return made_rows(
        folder,
        {
            "single": [(0.90, 0.91), (0.92, 0.93), (0.91, 0.91)],
            "topk,ratio=0.1": [(0.89, 0.90), (0.92, 0.92), (0.91, 0.92)],
            "topk,ratio=0.01": [(0.80, 0.95), (0.81, 0.97), (0.82, 0.96)],
        },
    )
