"""The parts of a report page that all labs share: opening, analysis, tables, figures."""
